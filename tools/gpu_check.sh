# ./run gpu-check: what only real cards can show, as one table. Sourced by ./run.
#
# The machine has a card, CMake, a C++ compiler and nvcc, perhaps Python with torch; no network and no Debian packages.
# Headers that are missing come from build/gpu-check-headers.tar.gz, which `./run gpu-check --pack` makes elsewhere.

check_folder=$root/build/gpu-check
check_archive=$root/build/gpu-check-headers.tar.gz
check_limit=${GRADUS_GPU_CHECK_LIMIT:-600} # seconds for each part
kernel_rows="pointwise|copy|reduce|softmax|layer_norm|cross_entropy|attention|adam|gradient_norm|embedding|overhead|matmul"
check_parts=(machine build tests synchronous sanitizer kernels training)

# --- the archive ---

pack_headers() {
    local folder item
    need "${build_packages[@]}" catch2 libbenchmark-dev
    folder=$(mktemp -d)
    uname -m >"$folder/machine" # Catch2 and Google Benchmark come with a library each
    for item in include/{eigen3,nlohmann,CLI,catch2,benchmark} share/eigen3/cmake share/cmake/{nlohmann_json,CLI11,eigen3} \
        lib/cmake/Catch2 lib/libCatch2*.a lib/"$(uname -m)"-linux-gnu/{cmake/{Catch2,benchmark},libCatch2*.a,libbenchmark*}; do
        compgen -G "/usr/$item" >/dev/null || continue
        mkdir -p "$folder/$(dirname "$item")"
        cp -rL /usr/$item "$folder/$(dirname "$item")/"
    done
    mkdir -p "$root/build"
    tar -C "$folder" -czf "$check_archive" .
    rm -rf "$folder"
    say "${check_archive#"$root/"} ($(du -h "$check_archive" | cut -f1)) is ready: take it along with the sources"
}

unpack_headers() { # prints CMake's arguments that make it find them
    local header missing=no prefix=$check_folder/headers folder
    for header in eigen3/Eigen/Core nlohmann/json.hpp CLI/CLI.hpp catch2 benchmark/benchmark.h; do
        [[ -e /usr/include/$header || -e /usr/local/include/$header ]] || missing=yes
    done
    [[ ${GRADUS_GPU_CHECK_UNPACK:-$missing} == yes ]] || return 0
    [[ -f $check_archive ]] ||
        die 2 "gpu-check: headers are missing here; make ${check_archive#"$root/"} elsewhere with ./run gpu-check --pack"
    rm -rf "$prefix"
    mkdir -p "$prefix"
    tar -C "$prefix" -xzf "$check_archive"
    [[ $(<"$prefix/machine") == "$(uname -m)" ]] ||
        die 2 "gpu-check: the archive was made on $(<"$prefix/machine") and this machine is $(uname -m)"
    printf '%s\n' "-DCMAKE_PREFIX_PATH=$prefix"
    for folder in "$prefix"/lib/*/cmake/*; do
        [[ ! -d $folder ]] || printf '%s\n' "-D${folder##*/}_DIR=$folder"
    done
}

# --- the report ---

check_rows=() # "part|status|seconds|detail"
check_failed=0
row() { # PART STATUS SECONDS DETAIL
    check_rows+=("$1|$2|$3|$4")
    [[ $2 != failed ]] || check_failed=$((check_failed + 1))
    say "$1: $2${4:+ ($4)}"
}

# Runs a command within the limit; its output goes to a log whose end is shown when it fails.
part() { # NAME DETAIL COMMAND...
    local name=$1 detail=$2 status=0 start=$SECONDS log
    shift 2
    log=$check_folder/${name//[, ]/-}.log
    say "$name"
    timeout -k 10 "$check_limit" "$@" </dev/null >"$log" 2>&1 || status=$?
    local seconds=$((SECONDS - start)) summary unmet
    summary=$(grep -aE '^(All tests passed|test cases:|========= ERROR SUMMARY)' "$log" | tail -n 1) || true
    [[ -z $summary ]] || detail+=${detail:+; }${summary#========= }
    unmet=$(grep -ac 'not run: needs [2-9] cards' "$log") || true
    ((unmet == 0)) || detail+="${detail:+; }$unmet tests need more cards"
    if ((status == 124 || status == 137)); then
        row "$name" failed "$seconds" "not done after $check_limit s; ${log#"$root/"}"
    elif grep -qa 'not run: needs 1 cards' "$log"; then
        row "$name" failed "$seconds" "the program sees no card; ${log#"$root/"}"
    elif ((status != 0)); then
        tail -n 20 "$log" >&2
        row "$name" failed "$seconds" "status $status; ${detail:+$detail; }${log#"$root/"}"
    else
        row "$name" passed "$seconds" "$detail"
    fi
    return 0
}

in_json() { sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' <<<"$1"; }

write_report() {
    local entry part status seconds detail comma=""
    {
        printf '{\n"machine": "%s",\n"parts": [' "$(in_json "$check_machine")"
        for entry in "${check_rows[@]}"; do
            IFS='|' read -r part status seconds detail <<<"$entry"
            printf '%s\n{"part": "%s", "status": "%s", "seconds": %s, "detail": "%s"}' "$comma" "$part" "$status" \
                "$seconds" "$(in_json "$detail")"
            comma=,
        done
        printf '\n],\n"benchmarks": ['
        awk -F'\t' '{ printf "%s\n{\"name\": \"%s\", \"seconds\": %s, \"share_of_copy\": %s, \"torch_seconds\": %s}", \
            comma, $1, $2, $3 == "" ? "null" : $3, $4 == "" ? "null" : $4; comma = "," }' "$check_folder/benchmarks.tsv"
        printf '\n]\n}\n'
    } >"$check_folder/report.json"

    printf '\n%s\n\n%-28s %-8s %8s  %s\n' "$check_machine" part result seconds detail
    for entry in "${check_rows[@]}"; do
        IFS='|' read -r part status seconds detail <<<"$entry"
        printf '%-28s %-8s %8s  %s\n' "$part" "$status" "$seconds" "$detail"
    done
    if [[ -s $check_folder/benchmarks.tsv ]]; then
        printf '\n%-56s %12s %9s %12s %12s\n' benchmark microsecs "of copy" "torch" "torch/ours"
        awk -F'\t' '{ printf "%-56s %12.2f %9s %12s %12s\n", $1, 1e6 * $2, $3 == "" ? "" : sprintf("%.1f %%", 100 * $3), \
            $4 == "" ? "" : sprintf("%.2f", 1e6 * $4), $4 == "" ? "" : sprintf("%.2f", $4 / $2) }' "$check_folder/benchmarks.tsv"
    fi
    say "the same is in ${check_folder#"$root/"}/report.json"
}

# --- the parts ---

check_build() {
    local arguments=() generator="Unix Makefiles" architecture text benchmarks=yes
    text=$(unpack_headers) || exit
    [[ -z $text ]] || mapfile -t arguments <<<"$text"
    ! command -v ninja >/dev/null || generator=Ninja
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -un | paste -sd';')
    [[ -n $architecture ]] || die 2 "gpu-check: nvidia-smi does not say the cards' compute capabilities"
    ((${architecture%%;*} >= 80)) || die 2 "gpu-check: a card of compute capability 8.0 or newer is needed: here is sm_$architecture"
    part "configuration" "nvcc $nvcc_version, sm_$architecture" cmake -S "$root" -B "$check_folder/build" -G "$generator" \
        -DCMAKE_BUILD_TYPE=Release -DGRADUS_CUDA=real "-DCMAKE_CUDA_ARCHITECTURES=$architecture" \
        -DGRADUS_INSTALL=OFF "${arguments[@]}"
    ((check_failed == 0)) || return 0
    ! grep -q 'Catch2 was not found' "$check_folder/configuration.log" || die 2 "gpu-check: Catch2 was not found"
    if grep -q 'benchmark was not found' "$check_folder/configuration.log"; then
        row benchmarks "not run" 0 "Google Benchmark was not found"
        benchmarks=no
    fi
    # nvcc takes its time and memory: the limit is that of a part, so this may need a second call to finish.
    part "build" "" cmake --build "$check_folder/build" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" \
        --target gradus_tests kernel_table
    ((check_failed == 0)) || return 0
    # A library that came with the archive may not link here: the tests shall run all the same.
    [[ $benchmarks == no ]] || part "build of the benchmarks" "" cmake --build "$check_folder/build" \
        --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" --target gradus_bench
    part "registers and spills" "" "$check_folder/build/kernel_table" --json "$check_folder/kernels.json" \
        --allowed "$root/tools/kernel_exceptions.txt" \
        $(find "$check_folder/build/kernels" -name '*.ptxas' -printf '%p ')
}

check_sanitizer() {
    local sanitizer tool refusal=""
    sanitizer=$(command -v compute-sanitizer || true)
    for tool in "$(dirname "$nvcc")" "${CUDA_HOME:-/usr/local/cuda}"/{bin,compute-sanitizer}; do
        [[ -n $sanitizer || ! -x $tool/compute-sanitizer ]] || sanitizer=$tool/compute-sanitizer
    done
    if [[ -z $sanitizer ]]; then
        refusal="compute-sanitizer was not found"
    else # Some virtual machines do not let it near the card.
        refusal=$(timeout 60 "$sanitizer" "$tests" 'events are reached*' 2>&1 </dev/null |
            grep -ai 'not supported\|unable to\|failed to initialize' | head -n 1 | tr -d '|') || true
    fi
    for tool in memcheck racecheck initcheck synccheck; do
        if [[ -n $refusal ]]; then
            row "sanitizer $tool" "not run" 0 "${refusal#========= }"
        else
            # Without the pool every tensor is memory of its own, at whose end the tool looks.
            part "sanitizer $tool" "" env GRADUS_POOL=off "$sanitizer" --tool "$tool" --error-exitcode 9 "$tests" '[cuda][race]'
        fi
    done
}

# Rows of Google Benchmark's JSON as name, seconds, share of the copy, and the peer's seconds.
collect_benchmarks() { # JSON PEER...
    local json=$1
    shift
    cat "$@" /dev/null 2>/dev/null | awk -v json="$json" '
        NF == 2 { torch[$1] = $2 }
        /^step median/ { torch["cuda/training/seq2seq_128x24x8000"] = $3 }
        function put() { if (name != "" && seconds != "") printf "%s\t%s\t%s\t%s\n", name, seconds, share, torch[name] }
        END {
            while ((getline line < json) > 0) {
                split(line, word, "\"")
                value = line; sub(/^[^:]*: */, "", value); sub(/,$/, "", value)
                if (word[2] == "name") { put(); name = value; gsub(/"/, "", name); sub(/\/(iterations|min_time|manual_time).*/, "", name); seconds = share = "" }
                if (word[2] == "seconds") seconds = value
                if (word[2] == "share_of_copy") share = value
            }
            put()
        }' >>"$check_folder/benchmarks.tsv"
}

have_torch() { python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }

check_benchmarks() { # PART FILTER PEER [ARGUMENTS...]
    local part=$1 filter=$2 peer=$root/benchmarks/peers/$3 json=$check_folder/$1.json peers=()
    shift 3
    [[ -x $bench ]] || return 0
    rm -f "$json"
    part "$part" "" "$bench" "--benchmark_filter=$filter" "--benchmark_out=$json" --benchmark_out_format=json
    if ! grep -qs '"seconds"' "$json"; then
        row "$part" failed 0 "no benchmark ran"
        return
    fi
    if have_torch; then
        part "$part in torch" "" python3 "$peer" "$@"
        peers=("$check_folder/$part-in-torch.log")
    else
        row "$part in torch" "not run" 0 "Python has no torch that sees the card"
    fi
    collect_benchmarks "$json" "${peers[@]}"
}

gpu_check_command() {
    local wanted=() name tests bench
    while (($#)); do
        case $1 in
        --pack)
            pack_headers
            return
            ;;
        -*) die 2 "gpu-check: unknown option $1 (./run help)" ;;
        *)
            [[ " ${check_parts[*]} " == *" $1 "* ]] || die 2 "gpu-check: there is no part '$1': ${check_parts[*]}"
            wanted+=("$1")
            ;;
        esac
        shift
    done
    ((${#wanted[@]})) || wanted=("${check_parts[@]}")
    have_card || die 2 "gpu-check: this machine has no card that nvidia-smi -L lists"
    find_nvcc || die 2 "gpu-check: $(no_nvcc); it comes with NVIDIA's CUDA toolkit"
    for name in cmake "${CXX:-c++}"; do
        command -v "$name" >/dev/null || die 2 "gpu-check: $name was not found"
    done
    name=$(cmake --version | sed -n '1s/[^0-9]*//p')
    [[ $(printf '%s\n' 3.25 "$name" | sort -V | head -n 1) == 3.25 ]] ||
        die 2 "gpu-check: CMake 3.25 or newer is needed: here is $name (pip install cmake brings one)"
    unset GRADUS_EMULATED_DEVICES
    mkdir -p "$check_folder"
    : >"$check_folder/benchmarks.tsv"
    check_machine=$(nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap --format=csv,noheader | sort | uniq -c |
        sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd';')
    tests=$check_folder/build/tests/gradus_tests
    bench=$check_folder/build/benchmarks/gradus_bench
    for name in "${wanted[@]}"; do
        case $name in
        machine) part "machine" "" nvidia-smi -q -d CLOCK,MEMORY,PERFORMANCE,ECC ;;
        build) check_build ;;
        *) # Nothing runs that was not built.
            if [[ ! -x $tests ]]; then
                row "$name" failed 0 "not built: run the part build first"
                continue
            fi
            ;;&
        tests)
            part "tests on the card" "" "$tests" '[cuda]'
            ;;
        synchronous) part "tests, GRADUS_SYNC=1" "" env GRADUS_SYNC=1 "$tests" '[cuda]~[ops]' ;;
        sanitizer) check_sanitizer ;;
        kernels) check_benchmarks kernels "^cuda/($kernel_rows)" kernels_torch.py ;;
        training) check_benchmarks training '^cuda/training' seq2seq_torch.py --device cuda --steps 30 ;;
        esac
    done
    write_report
    ((check_failed == 0))
}
