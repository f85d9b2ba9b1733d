// Managed memory: host and devices reach it by one address. All of Hufu's memory is like that, so
// the hints of this topic move nothing; they are checked, remembered for each range, and told.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "acl/acl.h"
#include "capi/ability.h"
#include "capi/error_code.h"
#include "memory/size_rules.h"
#include "runtime/runtime.h"

using hufu::Ability;
using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::memory::AllocCall;
using hufu::memory::Heap;
using hufu::memory::ManagedHint;
using hufu::memory::ManagedPlace;
using hufu::runtime::Contexts;
using hufu::runtime::Here;
using hufu::runtime::Runtime;
using hufu::runtime::Stream;
using hufu::runtime::Task;
using hufu::runtime::Where;

namespace {

// What queries answer for the host, and for "no one place".
constexpr int32_t kHostId = -1;
constexpr int32_t kNoId = -2;

hufu::Error fail_no_bytes() {
  return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0; pass at least one byte");
}

// `argument` is what the caller's declaration calls the location.
Result<ManagedPlace> place_of(const aclrtMemManagedLocation& location, const Contexts& contexts,
                              const char* argument) {
  const ManagedPlace place{.type = location.type, .id = location.id};
  switch (location.type) {
    case ACL_MEM_LOCATIONTYPE_DEVICE: {
      const auto device = contexts.device_of(location.id, argument);
      if (!device) return device.error();
      return place;
    }
    case ACL_MEM_LOCATIONTYPE_HOST:
    case ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT:
      return ManagedPlace{.type = location.type, .id = kHostId};
    case ACL_MEM_LOCATIONTYPE_HOST_NUMA:
      if (location.id >= 0) return place;
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "{} has the NUMA node {}; pass one, from 0, or the type "
                  "ACL_MEM_LOCATIONTYPE_HOST",
                  argument, location.id);
    case ACL_MEM_LOCATIONTYPE_INVALID:
      break;
  }
  return fail(Errc::kInvalidValue, Reason::kNone,
              "{} has the type {}; pass an aclrtMemManagedLocationType, 1 to 4", argument,
              static_cast<int>(location.type));
}

// Whoever has an id: a device or a NUMA node. The host is not numbered.
int32_t number_for_queries(const std::optional<ManagedPlace>& place) {
  return place ? place->id : kNoId;
}
// Devices by their ids, everything else is the host.
int32_t id_for_queries(const std::optional<ManagedPlace>& place) {
  if (!place) return kNoId;
  return place->type == ACL_MEM_LOCATIONTYPE_DEVICE ? place->id : kHostId;
}
int32_t type_for_queries(const std::optional<ManagedPlace>& place) {
  return place ? place->type : ACL_MEM_LOCATIONTYPE_INVALID;
}

Result<Heap::ChangeHint> change_for(aclrtMemManagedAdviseType advise,
                                    const aclrtMemManagedLocation& location,
                                    const Contexts& contexts) {
  switch (advise) {
    case ACL_MEM_ADVISE_SET_READ_MOSTLY:
    case ACL_MEM_ADVISE_UNSET_READ_MOSTLY: {
      const bool set = advise == ACL_MEM_ADVISE_SET_READ_MOSTLY;
      return Heap::ChangeHint([set](size_t, ManagedHint& hint) { hint.read_mostly = set; });
    }
    case ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      return Heap::ChangeHint([](size_t, ManagedHint& hint) { hint.preferred.reset(); });
    case ACL_MEM_ADVISE_SET_PREFERRED_LOCATION:
    case ACL_MEM_ADVISE_SET_ACCESSED_BY:
    case ACL_MEM_ADVISE_UNSET_ACCESSED_BY:
      break;
    default:  // A C caller can pass any number.
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "advise is {}; pass an aclrtMemManagedAdviseType, 0 to 5",
                  static_cast<int>(advise));
  }
  const auto place = place_of(location, contexts, "location");
  if (!place) return place.error();
  if (advise == ACL_MEM_ADVISE_SET_PREFERRED_LOCATION) {
    return Heap::ChangeHint(
        [place = *place](size_t, ManagedHint& hint) { hint.preferred = place; });
  }
  const int32_t id = id_for_queries(*place);
  if (advise == ACL_MEM_ADVISE_SET_ACCESSED_BY) {
    return Heap::ChangeHint([id](size_t, ManagedHint& hint) { hint.accessed_by.insert(id); });
  }
  return Heap::ChangeHint([id](size_t, ManagedHint& hint) { hint.accessed_by.erase(id); });
}

// The memory is where it is wanted already; what is left of a prefetch is its place in the order.
Result<void> prefetch(const Here& here, std::span<const Heap::ManagedRange> ranges,
                      const std::vector<ManagedPlace>& places, aclrtStream stream) {
  return here.runtime->streams().issue(
      stream, here.context, Where::kHereIfIdle, [&](Stream& /*stream*/) -> Result<Task> {
        const auto done = here.runtime->heap().change_hints(
            ranges, [&](size_t index, ManagedHint& hint) { hint.last_prefetch = places[index]; });
        if (!done) return done.error();
        return Task();
      });
}

Result<void> check_flags(uint64_t flags) {
  if (flags == 0) return {};
  return fail(Errc::kInvalidValue, Reason::kBadFlags, "flags is {:#x}; pass 0", flags);
}

struct Answered {
  aclrtMemManagedRangeAttribute attribute;
  void* data;
  size_t size;
  size_t index;  // Among several; for texts.
};

Result<void> check_size(const Answered& wanted) {
  const bool list = wanted.attribute == ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  const bool fits = list ? wanted.size != 0 && wanted.size % sizeof(int32_t) == 0
                         : wanted.size == sizeof(int32_t);
  if (fits) return {};
  return fail(Errc::kInvalidValue, Reason::kNone, "dataSize is {} (of attribute {}); pass {}",
              wanted.size, wanted.index, list ? "a multiple of 4, room for so many devices" : "4");
}

Result<void> check_attribute(const Answered& wanted) {
  if (wanted.attribute < ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
      wanted.attribute > ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "attribute is {}; pass an aclrtMemManagedRangeAttribute, 1 to 8",
                static_cast<int>(wanted.attribute));
  }
  return check_size(wanted);
}

void give(const Answered& wanted, const ManagedHint& hint) {
  const auto give_one = [&](int32_t value) { std::memcpy(wanted.data, &value, sizeof(value)); };
  switch (wanted.attribute) {
    case ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return give_one(hint.read_mostly ? 1 : 0);
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return give_one(id_for_queries(hint.preferred));
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return give_one(number_for_queries(hint.preferred));
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return give_one(type_for_queries(hint.preferred));
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return give_one(id_for_queries(hint.last_prefetch));
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return give_one(number_for_queries(hint.last_prefetch));
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return give_one(type_for_queries(hint.last_prefetch));
    case ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      std::vector<int32_t> ids(wanted.size / sizeof(int32_t), kNoId);
      const size_t count = std::min(ids.size(), hint.accessed_by.size());
      std::copy_n(hint.accessed_by.begin(), count, ids.begin());
      std::memcpy(wanted.data, ids.data(), wanted.size);
      return;
    }
  }
}

Result<void> give_all(std::span<const Answered> wanted, const void* ptr, size_t size) {
  for (const Answered& one : wanted) {
    if (auto good = check_attribute(one); !good) return good;
  }
  if (auto able = require(Ability::kManaged); !able) return able;
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  const auto hint = (*runtime)->heap().hint_of({.pointer = ptr, .size = size});
  if (!hint) return hint.error();
  for (const Answered& one : wanted)
    give(one, *hint);
  return {};
}

}  // namespace

aclError aclrtMemAllocManaged(void** ptr, uint64_t size, uint32_t flag) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (flag != ACL_RT_MEM_ATTACH_GLOBAL) {
      return fail(Errc::kInvalidArgument, Reason::kBadFlags,
                  "flag is {:#x}; pass ACL_RT_MEM_ATTACH_GLOBAL ({:#x})", flag,
                  ACL_RT_MEM_ATTACH_GLOBAL);
    }
    if (size == 0) {  // 107000, unlike the other allocators' sizes.
      return fail(Errc::kInvalidValue, Reason::kEmptyRange, "size is 0; pass at least one byte");
    }
    if (auto able = require(Ability::kManaged); !able) return able;
    const auto plan = hufu::memory::plan_allocation({.call = AllocCall::kManaged, .size = size});
    if (!plan) return plan.error();
    const auto here = Here::get();
    if (!here) return here.error();
    const auto made = here->runtime->heap().allocate(here->context.device, *plan);
    if (!made) return made.error();
    *ptr = *made;
    return {};
  });
}

aclError aclrtMemManagedAdvise(const void* const ptr, uint64_t size,
                               aclrtMemManagedAdviseType advise, aclrtMemManagedLocation location) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (size == 0) return fail_no_bytes();
    if (auto able = require(Ability::kManaged); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto change = change_for(advise, location, (*runtime)->contexts());
    if (!change) return change.error();
    const std::array range = {Heap::ManagedRange{.pointer = ptr, .size = size}};
    return (*runtime)->heap().change_hints(range, *change);
  });
}

aclError aclrtMemManagedPrefetchAsync(const void* ptr, size_t size,
                                      aclrtMemManagedLocation location, uint32_t flags,
                                      aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (size == 0) return fail_no_bytes();
    if (auto good = check_flags(flags); !good) return good;
    if (auto able = require(Ability::kManaged); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    const auto place = place_of(location, here->runtime->contexts(), "location");
    if (!place) return place.error();
    const std::array range = {Heap::ManagedRange{.pointer = ptr, .size = size}};
    return prefetch(*here, range, {*place}, stream);
  });
}

aclError aclrtMemManagedPrefetchBatchAsync(const void** ptrs, size_t* sizes, size_t count,
                                           aclrtMemManagedLocation* prefetchLocs,
                                           size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                           uint64_t flags, aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (ptrs == nullptr) return null_argument("ptrs");
    if (sizes == nullptr) return null_argument("sizes");
    if (prefetchLocs == nullptr) return null_argument("prefetchLocs");
    if (prefetchLocIdxs == nullptr) return null_argument("prefetchLocIdxs");
    if (count == 0) {
      return fail(Errc::kInvalidArgument, Reason::kNone, "count is 0; pass at least one range");
    }
    if (numPrefetchLocs == 0 || numPrefetchLocs > count) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "numPrefetchLocs is {}; pass 1 to count, which is {}", numPrefetchLocs, count);
    }
    if (auto good = check_flags(flags); !good) return good;
    if (auto able = require(Ability::kManaged); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();

    std::vector<ManagedPlace> locations;
    for (size_t i = 0; i < numPrefetchLocs; ++i) {
      const bool in_order =
          i == 0 ? prefetchLocIdxs[0] == 0 : prefetchLocIdxs[i] > prefetchLocIdxs[i - 1];
      if (!in_order || prefetchLocIdxs[i] >= count) {
        return fail(Errc::kInvalidValue, Reason::kNone,
                    "prefetchLocIdxs[{}] is {}; they begin at 0, ascend, and are below count, "
                    "which is {}",
                    i, prefetchLocIdxs[i], count);
      }
      const auto place = place_of(prefetchLocs[i], here->runtime->contexts(), "prefetchLocs");
      if (!place) return place.error();
      locations.push_back(*place);
    }
    std::vector<Heap::ManagedRange> ranges;
    std::vector<ManagedPlace> places;
    for (size_t i = 0, location = 0; i < count; ++i) {
      if (ptrs[i] == nullptr) return null_argument("ptrs[i]");
      if (sizes[i] == 0) {
        return fail(Errc::kInvalidArgument, Reason::kEmptyRange,
                    "sizes[{}] is 0; pass at least one byte", i);
      }
      if (location + 1 < numPrefetchLocs && prefetchLocIdxs[location + 1] == i) ++location;
      ranges.push_back({.pointer = ptrs[i], .size = sizes[i]});
      places.push_back(locations[location]);
    }
    return prefetch(*here, ranges, places, stream);
  });
}

aclError aclrtMemManagedGetAttr(aclrtMemManagedRangeAttribute attribute, const void* ptr,
                                size_t size, void* data, size_t dataSize) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (data == nullptr) return null_argument("data");
    if (size == 0) return fail_no_bytes();
    const std::array wanted = {
        Answered{.attribute = attribute, .data = data, .size = dataSize, .index = 0}};
    return give_all(wanted, ptr, size);
  });
}

aclError aclrtMemManagedGetAttrs(aclrtMemManagedRangeAttribute* attributes, size_t numAttributes,
                                 const void* ptr, size_t size, void** data, size_t* dataSizes) {
  return answer([&]() -> Result<void> {
    if (attributes == nullptr) return null_argument("attributes");
    if (ptr == nullptr) return null_argument("ptr");
    if (data == nullptr) return null_argument("data");
    if (dataSizes == nullptr) return null_argument("dataSizes");
    if (size == 0) return fail_no_bytes();
    if (numAttributes == 0) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "numAttributes is 0; pass at least one attribute");
    }
    std::vector<Answered> wanted;
    for (size_t i = 0; i < numAttributes; ++i) {
      if (data[i] == nullptr) return null_argument("data[i]");
      wanted.push_back(
          {.attribute = attributes[i], .data = data[i], .size = dataSizes[i], .index = i});
    }
    return give_all(wanted, ptr, size);
  });
}
