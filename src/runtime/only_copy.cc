#include "runtime/only_copy.h"

#include <string_view>

#include <dlfcn.h>
#include <link.h>

namespace hufu::runtime {
namespace {

struct First {
  const char* path = nullptr;
  ElfW(Addr) base = 0;
};

// The loader lists what is loaded in the order of loading.
int look_for_first(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  const std::string_view path = info->dlpi_name;
  if (!path.substr(path.rfind('/') + 1).starts_with("libhufu.so")) return 0;
  *static_cast<First*>(found) = {.path = info->dlpi_name, .base = info->dlpi_addr};
  return 1;
}

}  // namespace

Result<void> check_only_copy() {
  First first;
  ::dl_iterate_phdr(look_for_first, &first);
  if (first.path == nullptr) return {};  // Linked into the program.
  Dl_info self{};
  ::dladdr(reinterpret_cast<const void*>(&check_only_copy), &self);
  if (reinterpret_cast<ElfW(Addr)>(self.dli_fbase) == first.base) return {};
  return fail(
      Errc::kUnavailable, Reason::kNone,
      "this process has two copies of the library, {} and then {}; the first one works, and "
      "this is the second: let the program and all its plugins load one file "
      "(LD_LIBRARY_PATH, RUNPATH)",
      first.path, self.dli_fname == nullptr ? "?" : self.dli_fname);
}

}  // namespace hufu::runtime
