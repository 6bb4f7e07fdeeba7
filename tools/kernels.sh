# ./run kernels: what ptxas says about every kernel. Sourced by ./run.

kernels_command() {
    local each=() report source all=() status=0
    while (($#)); do
        case $1 in
        --all) each=(--all) ;;
        *) die 2 "kernels: unknown option $1 (./run help)" ;;
        esac
        shift
    done
    find_nvcc || die 2 "kernels: $(no_nvcc); it comes with NVIDIA's CUDA toolkit"
    need "${build_packages[@]}"
    say "compiling the kernels with nvcc $nvcc_version"
    build cuda gradus_kernels kernel_table
    while IFS= read -r -d '' report; do
        # What a file that is gone has left behind does not count.
        source=${report#*/CMakeFiles/gradus_kernels_cuda.dir/}
        [[ ! -f $root/kernels/${source%.o.ptxas} ]] || all+=("$report")
    done < <(find "$root/build/cuda/kernels" -name '*.ptxas' -print0 | sort -z)
    ((${#all[@]})) || die 1 "kernels: nvcc said nothing about any kernel; build/cuda.log has the compilation"
    "$root/build/cuda/kernel_table" "${each[@]}" --json "$root/build/kernels.json" \
        --allowed "$root/tools/kernel_exceptions.txt" "${all[@]}" || status=$?
    say "the same figures are in build/kernels.json"
    return "$status"
}
