#ifndef HUFU_EXAMPLES_SHARE_BY_MAPPING_H_
#define HUFU_EXAMPLES_SHARE_BY_MAPPING_H_

// Way 3, which way 4 falls back to: make physical memory in the size that the device can map,
// reserve addresses, map the one at the other, export the physical memory.

#include <cstdint>
#include <cstdio>

#include "check.h"

inline void share_by_mapping(std::size_t wanted) {
  aclrtPhysicalMemProp prop{};
  prop.handleType = ACL_MEM_HANDLE_TYPE_NONE;
  prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
  prop.memAttr = ACL_HBM_MEM_NORMAL;
  prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  std::size_t granularity = 0;
  CHECK(
      aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity));
  const std::size_t size = (wanted + granularity - 1) / granularity * granularity;

  aclrtDrvMemHandle physical = nullptr;
  CHECK(aclrtMallocPhysical(&physical, size, &prop, 0));
  void* memory = nullptr;
  CHECK(aclrtReserveMemAddress(&memory, size, 0, nullptr, 0));
  CHECK(aclrtMapMem(memory, size, 0, physical, 0));
  std::uint64_t shareable = 0;
  CHECK(aclrtMemExportToShareableHandle(physical, ACL_MEM_HANDLE_TYPE_NONE,
                                        ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION, &shareable));
  std::printf("way 3: %zu bytes exported\n", size);
  CHECK(aclrtUnmapMem(memory));
  CHECK(aclrtReleaseMemAddress(memory));
  CHECK(aclrtFreePhysical(physical));
}

#endif  // HUFU_EXAMPLES_SHARE_BY_MAPPING_H_
