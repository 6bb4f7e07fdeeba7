# ./run mutation: takes out each barrier and wait of the kernels in turn; some test must notice. Sourced by ./run.
#
# Note [Mutation]
# A site is a barrier, __syncwarp, wait for asynchronous copies or wait for an event, by file and line. The emulator
# leaves one out when GRADUS_EMULATOR_SKIP names it, so nothing is built again. A first pass runs each test case by
# itself and notes which sites it reaches and how long it takes. With a site left out, its quick tests then run together
# under one policy after another until one fails; what they do not show is left to ThreadSanitizer, and then to the slow
# tests. A site that nothing shows survives, and so does one that no test reaches; tests/mutation_exceptions.txt lists
# those that only hardware can show. What was found stays in build/mutation.

# Policies: order streams copies seed. What most mistakes fall to comes first.
mutation_policies=(
    "reverse lazy late 1" "random lazy late 1" "in_order lazy eager 1" "random eager random 2" "reverse lazy eager 3"
    "in_order lazy late 1" "random random random 4" "random lazy late 5" "random eager eager 6" "random random late 7"
)
# Under ThreadSanitizer the order matters less than when copies arrive.
mutation_thread_policies=("in_order lazy late 1" "in_order lazy eager 1" "random random random 2")
mutation_quick=5        # seconds: tests up to this long run together
mutation_limit=120      # seconds: more than any run takes; one that hangs counts as noticed
mutation_thread_limit=600

# Runs tests under a policy. SITE may be empty.
mutated() { # PRESET SITE POLICY LIMIT EXPRESSION
    local order streams copies seed still=()
    read -r order streams copies seed <<<"$3"
    if [[ $1 == thread ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
        still=(setarch "$(uname -m)" -R)
    fi
    GRADUS_EMULATED_DEVICES=2 GRADUS_EMULATOR_WORKERS=1 GRADUS_THREADS=1 GRADUS_EMULATOR_SKIP=$2 \
        GRADUS_EMULATOR_ORDER=$order GRADUS_EMULATOR_STREAMS=$streams GRADUS_EMULATOR_COPIES=$copies \
        GRADUS_EMULATOR_SEED=$seed TSAN_OPTIONS=halt_on_error=1:exitcode=66 \
        timeout -k 5 "$4" "${still[@]}" "$root/build/$1/tests/gradus_tests" --abort "$5" \
        </dev/null >"$work/out.${6:-$BASHPID}" 2>&1
}

# A test's name as an expression of Catch2: its own signs are escaped.
as_expression() { sed -e 's/[][,*\\"~]/\\&/g' <<<"$1"; }

# What a source line at a site says, to find it again when lines have moved.
line_before() { # FILE:LINE -> the last line before it that is not empty, trimmed
    local path
    path=$(site_path "$1")
    head -n $((${1##*:} - 1)) "$path" | grep -v '^ *$' | tail -n 1 | sed 's/^ *//; s/ *$//'
}
site_path() { find "$root/kernels" "$root/core" -name "${1%%:*}" | head -n 1; }

excepted() { # FILE:LINE: prints the reason
    local file=${1%%:*} before name text reason
    before=$(line_before "$1")
    while IFS='|' read -r name text reason; do
        name=${name// /} text=$(sed 's/^ *//; s/ *$//' <<<"$text")
        [[ $name == "$file" && $text == "$before" ]] || continue
        sed 's/^ *//' <<<"$reason"
        return 0
    done < <(grep -v '^#' "$root/tests/mutation_exceptions.txt")
    return 1
}

# First pass: $work/reaches holds "SITE milliseconds number-of-test", $work/names the tests by number.
mutation_coverage() {
    local number=0 name start log status milliseconds
    # Catch2 2 and Catch2 3 have different words for it.
    local list wanted='[cuda]~[emulation]~[slow]'
    for list in "--list-test-names-only" "--list-tests --verbosity quiet"; do
        # shellcheck disable=SC2086
        "$root/build/release/tests/gradus_tests" $list "$wanted" 2>/dev/null |
            sed 's/[[:space:]]*$//' | grep -v '^$' >"$work/names" || true
        [[ ! -s $work/names ]] || break
    done
    [[ -s $work/names ]] || die 1 "mutation: there is no test tagged [cuda]"
    say "looking where $(wc -l <"$work/names") tests wait"
    : >"$work/reaches"
    while IFS= read -r name; do
        number=$((number + 1)) log=$work/sites.$number status=0
        start=$(date +%s%N)
        GRADUS_EMULATOR_COVERAGE=$log mutated release "" "${mutation_policies[0]}" 600 "$(as_expression "$name")" 0 ||
            status=$?
        if ((status != 0)); then
            say "left out, as it fails before anything is taken out (status $status): $name"
            echo "$name" >>"$work/broken"
            continue
        fi
        ! grep -qa '^No tests ran' "$work/out.0" || die 1 "mutation: Catch2 does not find the test '$name'"
        [[ -f $log ]] && sort -u "$log" | sed "s/\$/ $((($(date +%s%N) - start) / 1000000)) $number/" >>"$work/reaches"
        progress_line "$number of $(wc -l <"$work/names") tests"
    done <"$work/names"
    cut -d' ' -f3,4 "$work/reaches" | sort -u | while read -r milliseconds number; do
        ((milliseconds > mutation_quick * 1000)) || as_expression "$(sed -n "${number}p" "$work/names")"
    done | paste -sd, >"$work/quick"
}

# Every barrier in the sources, so that one no test reaches is seen too; then what the tests reached, in kernels and
# core. Prints "kind file:line".
mutation_sites() {
    {
        (cd "$root" && grep -nE '__syncthreads\(\)|__syncwarp\(' -r kernels --include='*.cu' --include='*.cuh' |
            sed -nE '/^[^:]*:[0-9]+: *\/\//d; s/^([^:]*\/)*([^:\/]*):([0-9]+):.*(syncthreads|syncwarp).*/\4 \2:\3/p')
        (cd "$root" && grep -nE '^[^\/]*cudaStreamWaitEvent\(' core/*.cpp |
            sed -nE 's/^([^:]*\/)*([^:\/]*):([0-9]+):.*/event-wait \2:\3/p')
        cut -d' ' -f1,2 "$work/reaches"
    } | sort -u | while read -r kind site; do
        [[ -n $(site_path "$site") ]] && printf '%s %s\n' "$kind" "$site"
    done
}

progress_line() { # TEXT
    [[ ! -t 2 ]] || printf '\r\e[K%s ' "$1" >&2
}

# Do the tests pass under a policy with nothing taken out? Where they do not, it proves nothing. Asked once for all
# quick tests of the release build, and once for what runs under ThreadSanitizer or alone.
sound() { # PRESET POLICY EXPRESSION LIMIT
    local key tests=$3
    [[ $1 != release || $4 != "$mutation_limit" ]] || tests=$(<"$work/quick")
    key=$work/sound.$(md5sum <<<"$1 $2 $tests" | cut -c1-16)
    if [[ ! -f $key ]]; then
        if mutated "$1" "" "$2" "$4" "$tests"; then echo yes >"$key"; else echo no >"$key"; fi
    fi
    [[ $(<"$key") == yes ]]
}

try() { # PRESET SITE POLICY LIMIT EXPRESSION: succeeds, and prints how, when the tests notice
    local status=0
    mutated "$1" "$2" "$3" "$4" "$5" || status=$?
    ((status != 0)) || return 1
    if ! sound "$1" "$3" "$5" "$4"; then
        printf 'note: under "%s" (%s) tests fail with nothing taken out\n' "$3" "$1" >>"$work/unsound"
        return 1
    fi
    case $status in
    124 | 137) printf 'hangs under %s' "$3" ;;
    66) printf 'ThreadSanitizer, %s' "$3" ;;
    *) printf 'seen under %s' "$3" ;;
    esac
}

# The tests that reach a site, the quickest first, one expression a line; $3 is `quick` or `slow`.
reaching() { # KIND SITE SPEED
    local milliseconds number
    grep -F "$1 $2 " "$work/reaches" | cut -d' ' -f3,4 | sort -n | while read -r milliseconds number; do
        case $3-$((milliseconds > mutation_quick * 1000)) in
        quick-0 | slow-1) as_expression "$(sed -n "${number}p" "$work/names")" ;;
        esac
    done
}

# The three attempts on a site, each a process of its own: what noticed goes to $work/result.SITE.
try_quick_tests() { # KIND SITE
    local policy tests
    tests=$(reaching "$1" "$2" quick | paste -sd,)
    [[ -n $tests ]] || return 0
    for policy in "${mutation_policies[@]}"; do
        try release "$2" "$policy" "$mutation_limit" "$tests" >"$work/result.$2" && return
    done
}
try_thread_sanitizer() { # KIND SITE
    local policy tests
    tests=$(reaching "$1" "$2" quick | paste -sd,)
    [[ -n $tests ]] || return 0
    for policy in "${mutation_thread_policies[@]}"; do
        try thread "$2" "$policy" "$mutation_thread_limit" "$tests" >"$work/result.$2" && return
    done
}
try_slow_tests() { # KIND SITE
    local policy expression
    while IFS= read -r expression; do
        for policy in "${mutation_policies[@]:0:4}"; do
            try release "$2" "$policy" "$((mutation_limit * 3))" "$expression" >"$work/result.$2" && return
        done
    done < <(reaching "$1" "$2" slow | head -n 3)
}

# Runs a function for each "kind site" of a file, some at a time.
each_site() { # FUNCTION FILE JOBS
    local kind site running=0 number=0 total
    total=$(wc -l <"$2")
    while read -r kind site; do
        if ((running >= $3)); then
            wait -n || true
            running=$((running - 1))
        fi
        "$1" "$kind" "$site" &
        running=$((running + 1)) number=$((number + 1))
        progress_line "$number of $total sites: $site"
        [[ -t 2 ]] || ((number % 10 != 0)) || printf '%d of %d sites, %d s\n' "$number" "$total" "$SECONDS" >&2
    done <"$2"
    wait
}

unnoticed() { # $work/left: the sites that tests reach and none has noticed
    local kind site
    while read -r kind site; do
        [[ -s $work/result.$site ]] || ! grep -qF "$kind $site " "$work/reaches" || echo "$kind $site"
    done <"$work/sites" >"$work/left"
}

mutation_command() {
    local jobs kind site how killed=0 total=0 excused=0 survivors=0 filter=""
    jobs=$(nproc)
    while (($#)); do
        case $1 in
        --jobs)
            jobs=${2:?mutation: --jobs needs a number}
            shift
            ;;
        -*) die 2 "mutation: unknown option $1 (./run help)" ;;
        *) filter=$1 ;;
        esac
        shift
    done
    need "${build_packages[@]}" catch2
    want "${build_extras[@]}" libsentencepiece-dev
    build release gradus_tests
    work=$root/build/mutation
    rm -rf "$work"
    mkdir -p "$work"
    mutation_coverage
    mutation_sites | while read -r kind site; do
        [[ ! $site =~ $filter ]] || echo "$kind $site"
    done >"$work/sites"
    [[ -s $work/sites ]] || die 0 "mutation: there is no barrier or wait at '$filter'"
    say "taking out $(wc -l <"$work/sites") barriers and waits, one at a time"
    each_site try_quick_tests "$work/sites" "$jobs"
    unnoticed
    if [[ -s $work/left ]]; then
        say "$(wc -l <"$work/left") not noticed yet: running them under ThreadSanitizer"
        build thread gradus_tests
        each_site try_thread_sanitizer "$work/left" "$jobs"
        unnoticed
        each_site try_slow_tests "$work/left" "$jobs"
    fi

    [[ ! -t 2 ]] || printf '\r\e[K' >&2
    while read -r kind site; do
        how=$(cat "$work/result.$site" 2>/dev/null) || true
        total=$((total + 1))
        if [[ -n $how ]]; then
            killed=$((killed + 1))
            printf '%-32s %-12s killed    %s\n' "$site" "$kind" "$how"
        elif how=$(excepted "$site"); then
            excused=$((excused + 1))
            printf '%-32s %-12s excepted  %s\n' "$site" "$kind" "$how"
        else
            survivors=$((survivors + 1))
            how="no test notices, after: $(line_before "$site")"
            grep -qF "$kind $site " "$work/reaches" || how="no test reaches it"
            printf '%-32s %-12s SURVIVED  %s\n' "$site" "$kind" "$how"
        fi
    done <"$work/sites"
    [[ ! -f $work/unsound ]] || sort -u "$work/unsound"
    printf 'mutation score: %d %% (%d of %d)%s\n' $((100 * killed / total)) "$killed" "$total" \
        "$( ((excused == 0)) || printf ', %d need hardware' "$excused")"
    [[ ! -f $work/broken ]] || say "$(wc -l <"$work/broken") tests failed without any mutation: mend them first"
    [[ $survivors == 0 && ! -f $work/broken ]]
}
