# Debian packages for ./run: which are missing, and their installation where that is allowed.

unpacked() { # PACKAGE, as dpkg sees it
    [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) == ?i* ]]
}

installed() { # PACKAGE
    case $1 in
    g++) command -v "${CXX:-c++}" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    cmake | ccache | clang-format | pkg-config | python3) command -v "$1" >/dev/null ;;
    *) # On other systems CMake looks for the library and names it when it is missing.
        ! command -v dpkg-query >/dev/null || unpacked "$1" || { [[ $1 == catch2 ]] && unpacked libcatch2-dev; }
        ;;
    esac
}

absent=() # the packages of the last call of find_absent that are not installed
find_absent() { # PACKAGE...
    local package
    absent=()
    for package in "$@"; do
        installed "$package" || absent+=("$package")
    done
}

apt_get() { # ARGUMENTS; fails where this user may not install
    local as=()
    command -v apt-get >/dev/null || return 1
    if ((EUID != 0)); then
        command -v sudo >/dev/null || return 1
        as=(sudo)
        # Without a terminal nobody can type a password.
        [[ -t 0 && -t 2 ]] || as=(sudo -n)
        "${as[@]}" true 2>/dev/null || return 1
        as+=(env)
    else
        as=(env)
    fi
    "${as[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" </dev/null >>"$root/build/packages.log" 2>&1
}

known_to_apt() { # PACKAGE...
    local package
    for package in "$@"; do
        [[ $(LC_ALL=C apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[^\(]* ]] || return 1
    done
}

lists_are_fresh=no
install() { # PACKAGE...
    if [[ $lists_are_fresh == no ]] && ! known_to_apt "$@"; then
        apt_get update || true
        lists_are_fresh=yes
    fi
    apt_get install --no-install-recommends "$@" && return
    [[ $lists_are_fresh == no ]] || return 1
    # The lists may be older than the archive.
    apt_get update || true
    lists_are_fresh=yes
    apt_get install --no-install-recommends "$@"
}

need() { # PACKAGE...: all of them, or the end
    find_absent "$@"
    ((${#absent[@]})) || return 0
    say "installing ${absent[*]}"
    mkdir -p "$root/build"
    install "${absent[@]}" || true
    find_absent "$@"
    ((${#absent[@]})) || return 0
    if [[ -s $root/build/packages.log ]]; then
        tail -n 5 "$root/build/packages.log" >&2
    fi
    say "these packages are missing and could not be installed: ${absent[*]}"
    die 2 "run: ${SUDO_HINT}apt-get update && ${SUDO_HINT}apt-get install -y --no-install-recommends ${absent[*]}"
}

want() { # PACKAGE...: as many as can be had
    local package tried
    find_absent "$@"
    ((${#absent[@]})) || return 0
    mkdir -p "$root/build"
    local missing=("${absent[@]}")
    for package in "${missing[@]}"; do
        # An installation that failed is not tried again for a day.
        tried=$root/build/tried-$package
        if [[ -z $(find "$tried" -mtime -1 2>/dev/null) ]]; then
            say "installing $package (optional)"
            install "$package" || touch "$tried"
        fi
        installed "$package" ||
            say "going on without $package; to have it: ${SUDO_HINT}apt-get install -y --no-install-recommends $package"
    done
}

SUDO_HINT=""
((EUID == 0)) || SUDO_HINT="sudo "
