# What quickstart and check share: packages, and a build. Source this from the top of the source tree.

packages="autoconf automake pkg-config make gcc libc6-dev openmpi-bin libopenmpi-dev libhwloc-dev libpcre2-dev libjansson-dev libcmocka-dev procps"

say() {
    echo "[rankflash] $*" >&2
}

# Installs by apt what is missing, as root or with sudo; elsewhere says what is needed.
install_packages() {
    local missing="" sudo=""
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "this is no Debian or Ubuntu: needed are autoconf, automake, pkg-config, a C compiler, Open MPI, hwloc, PCRE2, Jansson and cmocka"
        return 0
    fi
    for p in $packages "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        sudo=sudo
        command -v sudo >/dev/null 2>&1 || { say "please install as root:$missing"; return 1; }
    fi
    say "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq >&2 && $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null || {
        say "apt-get could not install$missing"
        return 1
    }
}

# build FOLDER CONFIGURE_FLAGS...
build() {
    local folder=$1
    shift
    [ -x configure ] && [ configure -nt configure.ac ] || autoreconf -fi >/dev/null 2>&1 || { say "autoreconf failed"; return 1; }
    mkdir -p "$folder"
    [ -e "$folder/config.status" ] || (cd "$folder" && "$OLDPWD/configure" -q "$@" >configure.log 2>&1) || {
        tail -5 "$folder/configure.log" >&2
        return 1
    }
    make -C "$folder" -j"$(nproc)" >"$folder/make.log" 2>&1 || { tail -20 "$folder/make.log" >&2; return 1; }
}

# As root mpirun refuses unless told twice; told for this script alone.
allow_root() {
    [ "$(id -u)" -eq 0 ] || return 0
    say "running as root: telling mpirun that it may (OMPI_ALLOW_RUN_AS_ROOT, for this script alone)"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
