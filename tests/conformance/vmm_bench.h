#pragma once

// What the cases of virtual memory management work with: ranges, handles and mappings that are
// given back at a case's end.

#include "suite.h"

namespace hufu::conformance::vmm {

inline void* plus(void* address, std::size_t bytes) {
  return static_cast<std::byte*>(address) + bytes;
}

inline aclrtPhysicalMemProp props(aclrtMemAttr attr = ACL_MEM_HUGE) {
  return {.handleType = ACL_MEM_HANDLE_TYPE_NONE,
          .allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED,
          .memAttr = attr,
          .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
          .reserve = 0};
}

inline aclrtPhysicalMemProp* props_in(Bench& bench) { return bench.array({props()}); }

inline void* reserve(Bench& bench, std::size_t size = 4 * kHuge) {
  void* address = nullptr;
  need(aclrtReserveMemAddress(&address, size, 0, nullptr, 0), "aclrtReserveMemAddress");
  bench.finally([address] { (void)aclrtReleaseMemAddress(address); });
  return address;
}

inline aclrtDrvMemHandle physical(Bench& bench, std::size_t size = kHuge) {
  aclrtDrvMemHandle handle = nullptr;
  const aclrtPhysicalMemProp wanted = props();
  need(aclrtMallocPhysical(&handle, size, &wanted, 0), "aclrtMallocPhysical");
  bench.finally([handle] { (void)aclrtFreePhysical(handle); });
  return handle;
}

inline void unmap_at_end(Bench& bench, void* address) {
  bench.finally([address] { (void)aclrtUnmapMem(address); });
}

struct Mapped {
  void* base;
  aclrtDrvMemHandle handle;
};

inline Mapped mapped(Bench& bench) {
  const Mapped made{.base = reserve(bench), .handle = physical(bench)};
  need(aclrtMapMem(made.base, kHuge, 0, made.handle, 0), "aclrtMapMem");
  unmap_at_end(bench, made.base);
  return made;
}

inline std::size_t used() {
  std::size_t free = 0;
  std::size_t total = 0;
  need(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
  return total - free;
}

}  // namespace hufu::conformance::vmm
