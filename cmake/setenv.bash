# source <prefix>/bin/setenv.bash: builds and runs CANN's clients against this tree. Sourcing it
# again changes nothing more.

_hufu_prefix=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# _hufu_prepend NAME DIRECTORY: puts the directory in front of a list unless it is in it.
_hufu_prepend() {
  case ":${!1:-}:" in
    *":$2:"*) ;;
    *) export "$1=$2${!1:+:${!1}}" ;;
  esac
}

export ASCEND_HOME_PATH=$_hufu_prefix
export ASCEND_INSTALL_PATH=$_hufu_prefix
_hufu_prepend LD_LIBRARY_PATH "$_hufu_prefix/lib64"
_hufu_prepend PATH "$_hufu_prefix/bin"

unset -f _hufu_prepend
unset _hufu_prefix
