// Virtual memory management in a process without a broker: every rule and every code of it, but
// those of sharing.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "hufu/hufu.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20U;
constexpr size_t kGiant = size_t{1} << 30U;
constexpr size_t kCapacity = size_t{128} << 20U;

std::string recent() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

// A C caller can pass any number for an enumerator.
template <class Enum>
Enum from_c(int number) {
  return static_cast<Enum>(number);
}

char* offset(void* base, size_t bytes) { return static_cast<char*>(base) + bytes; }

aclrtPhysicalMemProp prop_of(aclrtMemAttr attr = ACL_HBM_MEM_HUGE,
                             aclrtMemLocationType type = ACL_MEM_LOCATION_TYPE_DEVICE,
                             uint32_t id = 0) {
  aclrtPhysicalMemProp prop{};
  prop.handleType = ACL_MEM_HANDLE_TYPE_NONE;
  prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
  prop.memAttr = attr;
  prop.location.type = type;
  prop.location.id = id;
  return prop;
}

class Vmm : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // NOLINTBEGIN(concurrency-mt-unsafe): before any thread.
    ::setenv("HUFU_BROKER", "none", 1);
    ::setenv("HUFU_DEVICES", "2", 1);
    ::setenv("HUFU_DEVICE_CAPACITY", "134217728", 1);
    // NOLINTEND(concurrency-mt-unsafe)
  }
  void SetUp() override {
    recent();
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS) << recent();
    before_ = used();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);  // What work kept has ended.
    EXPECT_EQ(used(), before_);
    EXPECT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS);
  }

  static size_t used() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), ACL_SUCCESS);
    return total - free;
  }
  static aclError malloc_physical(aclrtDrvMemHandle* handle, const aclrtPhysicalMemProp& prop,
                                  size_t size = kUnit, uint64_t flags = 0) {
    const aclError code = aclrtMallocPhysical(handle, size, &prop, flags);
    if (code == ACL_SUCCESS) {
      recent();
    } else {
      EXPECT_NE(recent(), "");
    }
    return code;
  }
  static aclrtDrvMemHandle make(size_t size = kUnit) {
    aclrtDrvMemHandle handle = nullptr;
    const auto prop = prop_of();
    EXPECT_EQ(aclrtMallocPhysical(&handle, size, &prop, 0), ACL_SUCCESS) << recent();
    return handle;
  }
  static void* reserve(size_t size) {
    void* base = nullptr;
    EXPECT_EQ(aclrtReserveMemAddress(&base, size, 0, nullptr, 0), ACL_SUCCESS) << recent();
    return base;
  }
  // A range with memory of its own.
  static void* mapped(size_t size = kUnit) {
    void* base = reserve(size);
    aclrtDrvMemHandle handle = make(size);
    EXPECT_EQ(aclrtMapMem(base, size, 0, handle, 0), ACL_SUCCESS) << recent();
    EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
    return base;
  }
  static void end(void* base) {
    EXPECT_EQ(aclrtUnmapMem(base), ACL_SUCCESS) << recent();
    EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS) << recent();
  }

  size_t before_ = 0;
};

class S14 : public Vmm {};
class S15 : public Vmm {};
class S16 : public Vmm {};
class P45 : public Vmm {};
class P46 : public Vmm {};

// --- Granularity and physical memory -------------------------------------------------------------

TEST_F(S14, GranularityIs2MiBForNormalAndHugeAnd1GiBForGiantPages) {
  for (int attr = 0; attr <= 19; ++attr) {
    for (const auto type : {ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_LOCATION_TYPE_HOST}) {
      for (const int option : {0, 1}) {
        auto prop = prop_of(from_c<aclrtMemAttr>(attr), type);
        size_t granularity = 99;
        const aclError code = aclrtMemGetAllocationGranularity(
            &prop, from_c<aclrtMemGranularityOptions>(option), &granularity);
        const bool ddr = attr == 2 || attr == 3 || attr == 6 || attr == 7;
        const bool known =
            ddr || attr == 4 || attr == 5 || attr == 10 || (attr >= 12 && attr <= 17);
        const bool good = known && !(ddr && type == ACL_MEM_LOCATION_TYPE_DEVICE);
        EXPECT_EQ(code, good ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM) << attr;
        const bool giant = attr == 10 || attr == 14 || attr == 17;
        EXPECT_EQ(granularity, !good ? 99 : giant ? kGiant : kUnit) << attr;
      }
    }
  }
}

TEST_F(S14, GranularityRefusesWhatTheContractSays) {
  auto prop = prop_of();
  size_t granularity = 99;
  const auto minimum = ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM;
  EXPECT_EQ(aclrtMemGetAllocationGranularity(nullptr, minimum, &granularity), 100000);
  EXPECT_EQ(aclrtMemGetAllocationGranularity(&prop, minimum, nullptr), 100000);
  EXPECT_EQ(
      aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF, &granularity),
      107000);
  prop.location.id = 2;
  EXPECT_EQ(aclrtMemGetAllocationGranularity(&prop, minimum, &granularity), 107001);
  EXPECT_EQ(granularity, 99U);
  // Not looked at by this call.
  prop = prop_of();
  prop.handleType = ACL_MEM_HANDLE_TYPE_POSIX;
  prop.allocationType = from_c<aclrtMemAllocationType>(7);
  prop.location.type = ACL_MEM_LOCATION_TYPE_MANAGED;
  EXPECT_EQ(aclrtMemGetAllocationGranularity(&prop, minimum, &granularity), ACL_SUCCESS);
}

TEST_F(S14, MallocPhysicalRefusesWhatTheContractSays) {
  aclrtDrvMemHandle handle = nullptr;
  auto prop = prop_of();
  EXPECT_EQ(aclrtMallocPhysical(nullptr, kUnit, &prop, 0), 100000);
  EXPECT_EQ(aclrtMallocPhysical(&handle, kUnit, nullptr, 0), 100000);
  EXPECT_EQ(malloc_physical(&handle, prop, 0), 100000);
  EXPECT_EQ(malloc_physical(&handle, prop, kUnit, 1), 100000);
  prop.handleType = ACL_MEM_HANDLE_TYPE_POSIX;
  EXPECT_EQ(malloc_physical(&handle, prop), 100000);
  prop = prop_of();
  prop.allocationType = from_c<aclrtMemAllocationType>(1);
  EXPECT_EQ(malloc_physical(&handle, prop), 100000);
  for (const int type : {2, 3, 5})
    EXPECT_EQ(
        malloc_physical(&handle, prop_of(ACL_HBM_MEM_HUGE, from_c<aclrtMemLocationType>(type))),
        100000);
  for (const int attr : {0, 1, 8, 9, 11, 18, -1})
    EXPECT_EQ(malloc_physical(&handle, prop_of(from_c<aclrtMemAttr>(attr))), 100000) << attr;
  EXPECT_EQ(malloc_physical(&handle, prop_of(ACL_DDR_MEM_HUGE)), 100000);
  for (const uint32_t device : {2U, 0xffffffffU})
    EXPECT_EQ(
        malloc_physical(&handle, prop_of(ACL_HBM_MEM_HUGE, ACL_MEM_LOCATION_TYPE_DEVICE, device)),
        107001);
  EXPECT_EQ(malloc_physical(&handle, prop_of(ACL_HBM_MEM_HUGE, ACL_MEM_LOCATION_TYPE_DEVICE, 1)),
            507899);
  EXPECT_EQ(malloc_physical(&handle, prop_of(), kUnit + 1), 107000);
  EXPECT_EQ(malloc_physical(&handle, prop_of(), kUnit / 2), 107000);
  EXPECT_EQ(malloc_physical(&handle, prop_of(ACL_HBM_MEM_HUGE1G), kUnit), 107000);
  EXPECT_EQ(malloc_physical(&handle, prop_of(ACL_MEM_HUGE, ACL_MEM_LOCATION_TYPE_HOST, 1)), 207000);
  EXPECT_EQ(malloc_physical(&handle, prop_of(ACL_MEM_HUGE1G, ACL_MEM_LOCATION_TYPE_HOST), kGiant),
            207000);
  EXPECT_EQ(malloc_physical(&handle, prop_of(ACL_DDR_MEM_HUGE, ACL_MEM_LOCATION_TYPE_HOST_NUMA)),
            207000);
  EXPECT_EQ(malloc_physical(&handle, prop_of(), 2 * kCapacity), 207001);
  EXPECT_EQ(handle, nullptr);
}

TEST_F(Vmm, PhysicalMemoryNeedsAContextOnlyOfANumaNode) {
  std::thread([] {
    aclrtDrvMemHandle handle = nullptr;
    const auto numa = prop_of(ACL_DDR_MEM_HUGE, ACL_MEM_LOCATION_TYPE_HOST_NUMA);
    EXPECT_EQ(aclrtMallocPhysical(&handle, kUnit, &numa, 0), 107002);
    for (const uint32_t device : {0U, 1U}) {
      const auto prop = prop_of(ACL_HBM_MEM_HUGE, ACL_MEM_LOCATION_TYPE_DEVICE, device);
      ASSERT_EQ(aclrtMallocPhysical(&handle, kUnit, &prop, 0), ACL_SUCCESS) << recent();
      void* base = nullptr;
      ASSERT_EQ(aclrtReserveMemAddress(&base, kUnit, 0, nullptr, 0), ACL_SUCCESS);
      ASSERT_EQ(aclrtMapMem(base, kUnit, 0, handle, 0), ACL_SUCCESS);
      aclrtPtrAttributes attributes{};
      ASSERT_EQ(aclrtPointerGetAttributes(base, &attributes), ACL_SUCCESS);
      EXPECT_EQ(attributes.location.id, device);
      EXPECT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
      EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
      EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
    }
  }).join();
}

TEST_F(Vmm, PropertiesSayThePageAndThePlace) {
  struct Row {
    aclrtMemAttr asked;
    aclrtMemLocationType type;
    aclrtMemAttr answered;
  };
  for (const Row& row : {Row{ACL_HBM_MEM_NORMAL, ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_HUGE},
                         Row{ACL_HBM_MEM_HUGE, ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_HUGE},
                         Row{ACL_MEM_P2P_NORMAL, ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_P2P_HUGE},
                         Row{ACL_DDR_MEM_P2P_HUGE, ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_P2P_HUGE},
                         Row{ACL_HBM_MEM_HUGE, ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_HUGE}}) {
    aclrtDrvMemHandle handle = nullptr;
    ASSERT_EQ(malloc_physical(&handle, prop_of(row.asked, row.type)), ACL_SUCCESS);
    aclrtPhysicalMemProp prop{};
    prop.reserve = 7;
    ASSERT_EQ(aclrtMemGetAllocationPropertiesFromHandle(handle, &prop), ACL_SUCCESS);
    EXPECT_EQ(prop.handleType, ACL_MEM_HANDLE_TYPE_NONE);
    EXPECT_EQ(prop.allocationType, ACL_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT_EQ(prop.memAttr, row.answered);
    EXPECT_EQ(prop.location.type, row.type);
    EXPECT_EQ(prop.location.id, 0U);
    EXPECT_EQ(prop.reserve, 0U);
    EXPECT_EQ(aclrtMemGetAllocationPropertiesFromHandle(nullptr, &prop), 100000);
    EXPECT_EQ(aclrtMemGetAllocationPropertiesFromHandle(handle, nullptr), 100000);
    EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemGetAllocationPropertiesFromHandle(handle, &prop), 107017);
  }
}

// --- Reserving -----------------------------------------------------------------------------------

TEST_F(S14, ReserveRefusesWhatTheContractSays) {
  void* base = nullptr;
  EXPECT_EQ(aclrtReserveMemAddress(nullptr, kUnit, 0, nullptr, 0), 100000);
  EXPECT_EQ(aclrtReserveMemAddress(&base, 0, 0, nullptr, 0), 100000);
  EXPECT_EQ(aclrtReserveMemAddress(&base, kUnit, 0, nullptr, 2), 100000);
  EXPECT_EQ(aclrtReserveMemAddress(&base, kUnit, 1, nullptr, 0), 107000);
  EXPECT_EQ(aclrtReserveMemAddress(&base, kUnit, 0, reinterpret_cast<void*>(kGiant + 4096), 0),
            107000);
  EXPECT_EQ(aclrtReserveMemAddress(&base, SIZE_MAX, 0, nullptr, 0), 207001);
  EXPECT_EQ(base, nullptr);
  EXPECT_EQ(aclrtReserveMemAddress(&base, kUnit, 0, nullptr, 1), ACL_SUCCESS);
  void* other = nullptr;
  EXPECT_EQ(aclrtReserveMemAddress(&other, kUnit, 0, base, 0), 107000);
  EXPECT_EQ(aclrtReleaseMemAddress(offset(base, 4096)), 107000);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(base), 107000);
  EXPECT_EQ(aclrtReleaseMemAddress(nullptr), 100000);
  ASSERT_EQ(aclrtReserveMemAddress(&other, kUnit, 0, base, 0), ACL_SUCCESS) << recent();
  EXPECT_EQ(other, base);
  EXPECT_EQ(aclrtReleaseMemAddress(other), ACL_SUCCESS);
}

TEST_F(Vmm, ARangeWithoutUncachedMemoryIsOfWholeGibibytesWhereItIsWanted) {
  void* base = reserve(kGiant);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kGiant, 0U);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
  void* there = nullptr;
  EXPECT_EQ(aclrtReserveMemAddressNoUCMemory(nullptr, kGiant, 0, base, 0), 100000);
  EXPECT_EQ(aclrtReserveMemAddressNoUCMemory(&there, 0, 0, base, 0), 100000);
  EXPECT_EQ(aclrtReserveMemAddressNoUCMemory(&there, kGiant, 0, base, 2), 100000);
  EXPECT_EQ(aclrtReserveMemAddressNoUCMemory(&there, kGiant, 0, nullptr, 0), 107000);
  EXPECT_EQ(aclrtReserveMemAddressNoUCMemory(&there, kUnit, 0, base, 0), 107000);
  EXPECT_EQ(there, nullptr);
  ASSERT_EQ(aclrtReserveMemAddressNoUCMemory(&there, kGiant, 0, base, 1), ACL_SUCCESS) << recent();
  EXPECT_EQ(there, base);
  EXPECT_EQ(aclrtReleaseMemAddress(there), ACL_SUCCESS);
}

// --- Mapping -------------------------------------------------------------------------------------

TEST_F(S14, MapRefusesWhatTheContractSays) {
  void* base = reserve(4 * kUnit);
  aclrtDrvMemHandle handle = make(2 * kUnit);
  const auto map = [&](void* at, size_t size, size_t from = 0, uint64_t flags = 0) {
    const aclError one = aclrtMapMem(at, size, from, handle, flags);
    EXPECT_EQ(aclrtMemMapNoAccess(at, size, from, handle, flags), one);
    return one;
  };
  EXPECT_EQ(map(nullptr, kUnit), 100000);
  EXPECT_EQ(map(base, 0), 100000);
  EXPECT_EQ(map(base, 2 * kUnit, 0, 1), 100000);
  EXPECT_EQ(map(base, 2 * kUnit, 1), 107000);
  EXPECT_EQ(map(base, kUnit), 107000);
  EXPECT_EQ(map(base, 3 * kUnit), 107000);
  EXPECT_EQ(map(base, 2 * kUnit + 1), 507899);
  EXPECT_EQ(map(offset(base, 4096), 2 * kUnit), 507899);
  EXPECT_EQ(map(offset(base, 3 * kUnit), 2 * kUnit), 507899);
  EXPECT_EQ(map(offset(base, 4 * kUnit), 2 * kUnit), 507899);
  EXPECT_EQ(aclrtMapMem(base, 2 * kUnit, 0, nullptr, 0), 100000);
  EXPECT_EQ(aclrtMapMem(base, 2 * kUnit, 0, &handle, 0), 107017);
  ASSERT_EQ(aclrtMapMem(offset(base, kUnit), 2 * kUnit, 0, handle, 0), ACL_SUCCESS);
  EXPECT_EQ(map(base, 2 * kUnit), 507899);
  EXPECT_EQ(map(offset(base, kUnit), 2 * kUnit), 507899);
  EXPECT_EQ(aclrtUnmapMem(nullptr), 100000);
  EXPECT_EQ(aclrtUnmapMem(offset(base, 4096)), 107000);
  EXPECT_EQ(aclrtUnmapMem(offset(base, 2 * kUnit)), 507899);
  EXPECT_EQ(aclrtUnmapMem(offset(base, kUnit)), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
}

TEST_F(Vmm, MappedMemoryIsDeviceMemory) {
  void* base = mapped(2 * kUnit);
  aclrtPtrAttributes attributes{};
  ASSERT_EQ(aclrtPointerGetAttributes(offset(base, 3000), &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(attributes.location.id, 0U);
  EXPECT_EQ(attributes.pageSize, kUnit);
  void* start = nullptr;
  size_t size = 0;
  ASSERT_EQ(aclrtMemGetAddressRange(offset(base, 3000), &start, &size), ACL_SUCCESS);
  EXPECT_EQ(start, base);
  EXPECT_EQ(size, 2 * kUnit);
  std::vector<char> host(kUnit, 'x');
  EXPECT_EQ(aclrtMemcpy(offset(base, kUnit), kUnit, host.data(), kUnit, ACL_MEMCPY_HOST_TO_DEVICE),
            ACL_SUCCESS);
  EXPECT_EQ(*offset(base, 2 * kUnit - 1), 'x');
  EXPECT_EQ(
      aclrtMemcpy(offset(base, kUnit + 1), kUnit, host.data(), kUnit, ACL_MEMCPY_HOST_TO_DEVICE),
      107000);
  EXPECT_EQ(aclrtFree(base), 107000);
  end(base);
  EXPECT_EQ(aclrtMemGetAddressRange(base, &start, &size), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
}

TEST_F(Vmm, WhereNothingIsMappedNoCopyGoes) {
  void* base = reserve(2 * kUnit);
  char byte = 'x';
  for (const bool once_mapped : {false, true}) {
    if (once_mapped) {
      aclrtDrvMemHandle handle = make();
      ASSERT_EQ(aclrtMapMem(base, kUnit, 0, handle, 0), ACL_SUCCESS);
      ASSERT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
      ASSERT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
    }
    EXPECT_EQ(aclrtMemset(base, 1, 1, 1), 107000);
    EXPECT_EQ(aclrtMemcpy(base, 1, &byte, 1, ACL_MEMCPY_HOST_TO_HOST), 107000);
    EXPECT_EQ(aclrtMemcpy(&byte, 1, base, 1, ACL_MEMCPY_DEFAULT), 107000);
    EXPECT_EQ(aclrtMemcpy(base, 1, &byte, 1, ACL_MEMCPY_HOST_TO_DEVICE),
              ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  }
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
}

TEST_F(S15, MappedWithoutAccessFaultsUntilItIsGiven) {
  void* base = reserve(kUnit);
  aclrtDrvMemHandle handle = make();
  ASSERT_EQ(aclrtMemMapNoAccess(base, kUnit, 0, handle, 0), ACL_SUCCESS) << recent();
  // The kernel is asked: it will not read for us what we may not read.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::write(ends[1], base, 1), -1);
  char byte = 'x';
  EXPECT_EQ(aclrtMemcpy(base, kUnit, &byte, 1, ACL_MEMCPY_HOST_TO_DEVICE), 507899);
  EXPECT_NE(recent().find("aclrtMemSetAccess"), std::string::npos);
  EXPECT_EQ(aclrtMemcpy(&byte, 1, base, 1, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
  EXPECT_EQ(aclrtMemcpy(base, kUnit, &byte, 1, ACL_MEMCPY_HOST_TO_HOST), 507899);
  EXPECT_EQ(aclrtMemset(base, kUnit, 1, 1), 507899);
  aclrtMemAccessDesc access{};
  access.location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
  for (const int flags : {0, 1, 2, 4}) {
    access.flags = from_c<aclrtMemAccessFlags>(flags);
    EXPECT_EQ(aclrtMemSetAccess(base, kUnit, &access, 1), 207000) << flags;
  }
  EXPECT_EQ(::write(ends[1], base, 1), -1);
  access.flags = ACL_RT_MEM_ACCESS_FLAGS_READWRITE;
  EXPECT_EQ(aclrtMemSetAccess(base, kUnit, &access, 1), ACL_SUCCESS) << recent();
  EXPECT_EQ(aclrtMemSetAccess(base, kUnit, &access, 1), ACL_SUCCESS) << recent();
  EXPECT_EQ(::write(ends[1], base, 1), 1);
  EXPECT_EQ(aclrtMemcpy(base, kUnit, &byte, 1, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(*static_cast<char*>(base), 'x');
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  end(base);
}

// In a program of its own: the fault is its last word.
TEST_F(S15, ATouchWithoutAccessIsSigsegv) {
  const auto die = [] {
    ::signal(SIGSEGV, SIG_DFL);  // A sanitizer would explain it at length, and exit.
    void* base = reserve(kUnit);
    aclrtDrvMemHandle handle = make();
    if (aclrtMemMapNoAccess(base, kUnit, 0, handle, 0) != ACL_SUCCESS) ::_exit(1);
    *static_cast<volatile char*>(base) = 1;
    ::_exit(2);
  };
  EXPECT_EXIT(die(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(S15, SetAccessRefusesWhatTheContractSays) {
  void* base = reserve(3 * kUnit);
  aclrtDrvMemHandle handle = make(2 * kUnit);
  ASSERT_EQ(aclrtMapMem(base, 2 * kUnit, 0, handle, 0), ACL_SUCCESS);
  aclrtMemAccessDesc access[2]{};
  access[0].flags = ACL_RT_MEM_ACCESS_FLAGS_READWRITE;
  access[0].location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_HOST};
  access[1] = access[0];
  EXPECT_EQ(aclrtMemSetAccess(nullptr, 2 * kUnit, access, 1), 107000);
  EXPECT_EQ(aclrtMemSetAccess(base, 2 * kUnit, nullptr, 1), 107000);
  EXPECT_EQ(aclrtMemSetAccess(base, 2 * kUnit, access, 0), 107000);
  EXPECT_EQ(aclrtMemSetAccess(base, 2 * kUnit, access, 2), 107000);
  EXPECT_EQ(aclrtMemSetAccess(base, kUnit, access, 1), 507899);
  EXPECT_EQ(aclrtMemSetAccess(base, 3 * kUnit, access, 1), 507899);
  EXPECT_EQ(aclrtMemSetAccess(offset(base, kUnit), kUnit, access, 1), 507899);
  EXPECT_EQ(aclrtMemSetAccess(offset(base, 2 * kUnit), kUnit, access, 1), 507899);
  access[1].location = {.id = 1, .type = ACL_MEM_LOCATION_TYPE_HOST};
  EXPECT_EQ(aclrtMemSetAccess(base, 2 * kUnit, access, 2), 107000);
  access[1].location = {.id = 2, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
  EXPECT_EQ(aclrtMemSetAccess(base, 2 * kUnit, access, 2), 107000);
  for (const int type : {2, 3, 4, 99}) {
    access[1].location = {.id = 0, .type = from_c<aclrtMemLocationType>(type)};
    EXPECT_EQ(aclrtMemSetAccess(base, 2 * kUnit, access, 2), 107000);
  }
  uint64_t flag = 99;
  aclrtMemLocation host = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_HOST};
  ASSERT_EQ(aclrtMemGetAccess(base, &host, &flag), ACL_SUCCESS);
  EXPECT_EQ(flag, 0U);  // None of the calls above did half of what it was to do.
  access[1].location = {.id = 1, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
  ASSERT_EQ(aclrtMemSetAccess(base, 2 * kUnit, access, 2), ACL_SUCCESS) << recent();
  for (aclrtMemLocation location :
       {host, access[1].location,
        aclrtMemLocation{.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE}}) {
    ASSERT_EQ(aclrtMemGetAccess(base, &location, &flag), ACL_SUCCESS);
    EXPECT_EQ(flag, 3U);
  }
  EXPECT_EQ(aclrtMemGetAccess(nullptr, &host, &flag), 100000);
  EXPECT_EQ(aclrtMemGetAccess(base, nullptr, &flag), 100000);
  EXPECT_EQ(aclrtMemGetAccess(base, &host, nullptr), 100000);
  host.id = 1;
  EXPECT_EQ(aclrtMemGetAccess(base, &host, &flag), 107000);
  host.id = 0;
  EXPECT_EQ(aclrtMemGetAccess(offset(base, 2 * kUnit), &host, &flag), 507899);
  EXPECT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemGetAccess(base, &host, &flag), 507899);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
}

// --- Ends ----------------------------------------------------------------------------------------

TEST_F(S16, FreedWhileMappedItsDataStaysUntilItIsUnmapped) {
  void* base = reserve(kUnit);
  aclrtDrvMemHandle handle = make();
  ASSERT_EQ(aclrtMapMem(base, kUnit, 0, handle, 0), ACL_SUCCESS);
  std::memset(base, 'd', kUnit);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  EXPECT_EQ(used(), before_ + kUnit);
  EXPECT_EQ(*offset(base, kUnit - 1), 'd');
  EXPECT_EQ(aclrtReleaseMemAddress(base), 507899);
  EXPECT_EQ(*offset(base, kUnit - 1), 'd');
  EXPECT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
  EXPECT_EQ(used(), before_);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
}

TEST_F(P45, TwiceFreedUnmappedOrReleasedIsAnErrorAndChangesNothing) {
  void* base = reserve(2 * kUnit);
  aclrtDrvMemHandle handle = make();
  aclrtDrvMemHandle other = make();
  ASSERT_EQ(aclrtMapMem(base, kUnit, 0, handle, 0), ACL_SUCCESS);
  ASSERT_EQ(aclrtMapMem(offset(base, kUnit), kUnit, 0, other, 0), ACL_SUCCESS);
  std::memset(base, 'd', 2 * kUnit);
  EXPECT_EQ(aclrtReleaseMemAddress(base), 507899);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreePhysical(handle), 107017);
  EXPECT_EQ(aclrtFreePhysical(handle), 107017);
  EXPECT_EQ(*offset(base, kUnit - 1), 'd');
  EXPECT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
  EXPECT_EQ(aclrtUnmapMem(base), 507899);
  EXPECT_EQ(aclrtReleaseMemAddress(base), 507899);
  EXPECT_EQ(*offset(base, kUnit), 'd');
  EXPECT_EQ(used(), before_ + kUnit);
  EXPECT_EQ(aclrtUnmapMem(offset(base, kUnit)), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(base), 107000);
  EXPECT_EQ(aclrtUnmapMem(base), 507899);
  EXPECT_EQ(used(), before_ + kUnit);
  EXPECT_EQ(aclrtFreePhysical(other), ACL_SUCCESS);
}

TEST_F(P45, GarbageForAHandleIsACode) {
  int local = 0;
  void* memory = mapped();
  for (void* garbage : {static_cast<void*>(&local), memory, reinterpret_cast<void*>(8),
                        reinterpret_cast<void*>(~uintptr_t{0}), reinterpret_cast<void*>(&recent)}) {
    aclrtPhysicalMemProp prop{};
    EXPECT_EQ(aclrtFreePhysical(garbage), 107017);
    EXPECT_EQ(aclrtMemGetAllocationPropertiesFromHandle(garbage, &prop), 107017);
    EXPECT_EQ(aclrtMapMem(memory, kUnit, 0, garbage, 0), 107017);
    EXPECT_EQ(aclrtMemMapSetLink(garbage, ACL_RT_MEM_ACCESS_LINK_SIO), 107017);
  }
  EXPECT_EQ(aclrtFreePhysical(nullptr), 100000);
  EXPECT_EQ(aclrtMemMapSetLink(nullptr, ACL_RT_MEM_ACCESS_LINK_SIO), 107000);
  end(memory);
}

TEST_F(Vmm, RetainGivesTheHandleBehindAMappingAndEachNeedsAFree) {
  void* base = mapped();  // Its own handle is freed.
  aclrtDrvMemHandle handle = nullptr;
  aclrtDrvMemHandle again = nullptr;
  ASSERT_EQ(aclrtMemRetainAllocationHandle(base, &handle), ACL_SUCCESS) << recent();
  ASSERT_EQ(aclrtMemRetainAllocationHandle(base, &again), ACL_SUCCESS);
  EXPECT_EQ(handle, again);
  EXPECT_EQ(aclrtMemRetainAllocationHandle(nullptr, &handle), 100000);
  EXPECT_EQ(aclrtMemRetainAllocationHandle(base, nullptr), 100000);
  int local = 0;
  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, kUnit, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  for (void* other : {static_cast<void*>(&local), block})
    EXPECT_EQ(aclrtMemRetainAllocationHandle(other, &handle), 507899);
  EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  std::memset(base, 'r', kUnit);
  end(base);
  // Mooncake's order: the physical memory last.
  void* elsewhere = reserve(kUnit);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  ASSERT_EQ(aclrtMapMem(elsewhere, kUnit, 0, handle, 0), ACL_SUCCESS);
  EXPECT_EQ(*offset(elsewhere, kUnit - 1), 'r');
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreePhysical(handle), 107017);
  end(elsewhere);
}

TEST_F(Vmm, BothOrdersOfFreeingWork) {
  for (const bool address_first : {false, true}) {
    void* base = reserve(kUnit);
    aclrtDrvMemHandle handle = make();
    ASSERT_EQ(aclrtMapMem(base, kUnit, 0, handle, 0), ACL_SUCCESS);
    ASSERT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
    if (address_first) {
      EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
      EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
    } else {
      EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
      EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
    }
    EXPECT_EQ(used(), before_);
  }
}

TEST_F(Vmm, ASelectedLinkIsOneMoreMappingOfTheSameMemory) {
  void* source = mapped(2 * kUnit);
  void* target = reserve(2 * kUnit);
  for (const uint32_t link : {0U, 1U}) {
    ASSERT_EQ(aclrtMemMapSelectedLink(target, 2 * kUnit, source, link), ACL_SUCCESS) << recent();
    *offset(source, kUnit) = 's';
    EXPECT_EQ(*offset(target, kUnit), 's');
    EXPECT_EQ(aclrtUnmapMem(target), ACL_SUCCESS);
    *offset(source, kUnit) = 'x';
  }
  EXPECT_EQ(aclrtMemMapSelectedLink(target, 2 * kUnit, source, 2), 107000);
  EXPECT_EQ(aclrtMemMapSelectedLink(target, 0, source, 0), 107000);
  EXPECT_EQ(aclrtMemMapSelectedLink(nullptr, 2 * kUnit, source, 0), 107000);
  EXPECT_EQ(aclrtMemMapSelectedLink(target, 2 * kUnit, nullptr, 0), 107000);
  EXPECT_EQ(aclrtMemMapSelectedLink(target, kUnit, source, 0), 107000);
  EXPECT_EQ(aclrtMemMapSelectedLink(target, 2 * kUnit, offset(source, kUnit), 0), 507899);
  EXPECT_EQ(aclrtMemMapSelectedLink(target, 2 * kUnit, target, 0), 507899);
  EXPECT_EQ(aclrtReleaseMemAddress(target), ACL_SUCCESS);
  end(source);
}

TEST_F(P46, EveryRefusalNamesItsArgument) {
  void* base = mapped();
  aclrtDrvMemHandle handle = nullptr;
  ASSERT_EQ(aclrtMemRetainAllocationHandle(base, &handle), ACL_SUCCESS);
  auto bad_device = prop_of(ACL_HBM_MEM_HUGE, ACL_MEM_LOCATION_TYPE_DEVICE, 9);
  const auto good = prop_of();
  aclrtMemAccessDesc access{};
  void* out = nullptr;
  aclrtDrvMemHandle made = nullptr;
  recent();
  const auto names = [](aclError code, std::string_view argument) {
    EXPECT_NE(code, ACL_SUCCESS);
    const std::string text = recent();
    EXPECT_NE(text.find(argument), std::string::npos) << argument << ": " << text;
  };
  names(aclrtReserveMemAddress(&out, kUnit, 3, nullptr, 0), "alignment is 3");
  names(aclrtReserveMemAddress(&out, kUnit, 0, nullptr, 4), "flags is 0x4");
  names(aclrtReserveMemAddress(&out, kUnit, 0, reinterpret_cast<void*>(4096), 0), "expectPtr");
  names(aclrtReleaseMemAddress(offset(base, 8)), "virPtr");
  names(aclrtMallocPhysical(&made, kUnit, &bad_device, 0), "prop->location.id is 9");
  names(aclrtMallocPhysical(&made, 100, &good, 0), "size 100");
  names(aclrtMapMem(base, kUnit, 1, handle, 0), "offset is 1");
  names(aclrtMapMem(base, kUnit, 0, handle, 2), "flags is 0x2");
  names(aclrtMapMem(base, kUnit, 0, handle, 0), "virPtr");
  names(aclrtUnmapMem(offset(base, 1)), "virPtr");
  names(aclrtMemSetAccess(base, kUnit, &access, 1), "desc[0].flags is 0");
  names(aclrtFreePhysical(&made), "handle");
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  end(base);
}

// --- Queued work ---------------------------------------------------------------------------------

// A task that stands until it is let go.
struct Gate {
  int ends[2] = {-1, -1};
  Gate() { EXPECT_EQ(::pipe(ends), 0); }
  ~Gate() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  static int32_t stand(void* self) {
    char byte = 0;
    return ::read(static_cast<Gate*>(self)->ends[0], &byte, 1) == 1 ? 0 : 1;
  }
  void open() const { EXPECT_EQ(::write(ends[1], "x", 1), 1); }
};

TEST_F(Vmm, WorkThatWasQueuedKeepsThePagesAndTheNextMappingWaitsForIt) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  void* base = mapped();
  std::memset(base, 'o', kUnit);
  void* target = nullptr;
  ASSERT_EQ(aclrtMalloc(&target, kUnit, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  Gate gate;
  ASSERT_EQ(hufuLaunchHostTask(stream, &Gate::stand, &gate), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemcpyAsync(target, kUnit, base, kUnit, ACL_MEMCPY_DEVICE_TO_DEVICE, stream),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtUnmapMem(base), ACL_SUCCESS);
  // Dead for new calls, and charged still.
  EXPECT_NE(aclrtMemcpyAsync(target, kUnit, base, kUnit, ACL_MEMCPY_DEVICE_TO_DEVICE, stream),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtUnmapMem(base), 507899);
  EXPECT_EQ(used(), before_ + 2 * kUnit);
  aclrtDrvMemHandle next = make();
  std::thread opener([&] { gate.open(); });
  ASSERT_EQ(aclrtMapMem(base, kUnit, 0, next, 0), ACL_SUCCESS) << recent();
  opener.join();
  std::memset(base, 'n', kUnit);
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(*offset(target, kUnit - 1), 'o');
  EXPECT_EQ(aclrtFreePhysical(next), ACL_SUCCESS);
  end(base);
  EXPECT_EQ(aclrtFree(target), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
}

TEST_F(Vmm, AllOfItMayEndWhileWorkIsQueued) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  void* base = mapped();
  Gate gate;
  ASSERT_EQ(hufuLaunchHostTask(stream, &Gate::stand, &gate), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(base, kUnit, 1, kUnit, stream), ACL_SUCCESS);
  end(base);
  EXPECT_EQ(used(), before_ + kUnit);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(used(), before_);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
}

// --- Sharing, alone ------------------------------------------------------------------------------

TEST_F(Vmm, SharingRefusesWhatTheContractSaysBeforeItAsksABroker) {
  aclrtDrvMemHandle handle = make();
  uint64_t token = 99;
  aclrtMemFabricHandle fabric{};
  int32_t pid = 1;
  const auto none = ACL_MEM_HANDLE_TYPE_NONE;
  const auto plain = ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT;
  EXPECT_EQ(aclrtMemExportToShareableHandle(nullptr, none, 0, &token), 100000);
  EXPECT_EQ(aclrtMemExportToShareableHandle(handle, none, 0, nullptr), 100000);
  EXPECT_EQ(aclrtMemExportToShareableHandle(handle, ACL_MEM_HANDLE_TYPE_POSIX, 0, &token), 100000);
  EXPECT_EQ(aclrtMemExportToShareableHandle(handle, none, 2, &token), 107000);
  EXPECT_EQ(aclrtMemExportToShareableHandle(&token, none, 0, &token), 107017);
  EXPECT_EQ(aclrtMemExportToShareableHandleV2(nullptr, 0, plain, &token), 100000);
  EXPECT_EQ(aclrtMemExportToShareableHandleV2(handle, 0, plain, nullptr), 100000);
  EXPECT_EQ(aclrtMemExportToShareableHandleV2(handle, 2, plain, &token), 107000);
  for (const int type : {0, 3, -1}) {
    const auto other = from_c<aclrtMemSharedHandleType>(type);
    EXPECT_EQ(aclrtMemExportToShareableHandleV2(handle, 0, other, &fabric), 107000);
    EXPECT_EQ(aclrtMemSetPidToShareableHandleV2(&fabric, other, &pid, 1), 107000);
    EXPECT_EQ(aclrtMemImportFromShareableHandleV2(&fabric, other, 0, &handle), 107000);
  }
  EXPECT_EQ(aclrtMemSetPidToShareableHandle(1, nullptr, 1), 100000);
  EXPECT_EQ(aclrtMemSetPidToShareableHandle(1, &pid, 0), 100000);
  EXPECT_EQ(aclrtMemSetPidToShareableHandle(1, &pid, 65536), 107000);
  EXPECT_EQ(aclrtMemSetPidToShareableHandleV2(nullptr, plain, &pid, 1), 100000);
  aclrtDrvMemHandle imported = nullptr;
  EXPECT_EQ(aclrtMemImportFromShareableHandle(1, 0, nullptr), 100000);
  EXPECT_EQ(aclrtMemImportFromShareableHandle(1, 2, &imported), 107001);
  EXPECT_EQ(aclrtMemImportFromShareableHandle(1, -1, &imported), 107001);
  EXPECT_EQ(aclrtMemImportFromShareableHandleV2(nullptr, plain, 0, &imported), 100000);
  EXPECT_EQ(aclrtMemImportFromShareableHandleV2(&token, plain, 0, nullptr), 100000);
  EXPECT_EQ(aclrtMemImportFromShareableHandleV2(&token, plain, 1, &imported), 100000);
  std::thread([&] {
    EXPECT_EQ(aclrtMemImportFromShareableHandle(1, 0, &imported), 107002);
    EXPECT_EQ(aclrtMemImportFromShareableHandleV2(&token, plain, 0, &imported), 107002);
  }).join();
  recent();
  EXPECT_EQ(aclrtMemExportToShareableHandle(handle, none, 1, &token), 507899);
  EXPECT_NE(recent().find("HUFU_BROKER"), std::string::npos);
  EXPECT_EQ(token, 99U);
  EXPECT_EQ(imported, nullptr);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
}

// --- From many threads ---------------------------------------------------------------------------

TEST_F(Vmm, CopiesAndMapsFromManyThreadsNeverMeetHalfAMapping) {
  constexpr size_t kPlaces = 3;
  constexpr int kRounds = 150;
  void* base = reserve(kPlaces * kUnit);
  std::atomic<int> mapping{kPlaces};
  std::atomic<bool> wrong{false};
  std::atomic<int> copied{0};
  std::vector<std::thread> threads;
  for (size_t place = 0; place < kPlaces; ++place) {
    threads.emplace_back([&, place] {
      void* at = offset(base, place * kUnit);
      // And until they have met what they race for.
      for (int round = 0; round < kRounds || copied.load() == 0; ++round) {
        aclrtDrvMemHandle handle = nullptr;
        aclrtDrvMemHandle again = nullptr;
        const auto prop = prop_of();
        const bool good = aclrtMallocPhysical(&handle, kUnit, &prop, 0) == ACL_SUCCESS &&
                          aclrtMapMem(at, kUnit, 0, handle, 0) == ACL_SUCCESS &&
                          aclrtMemRetainAllocationHandle(at, &again) == ACL_SUCCESS &&
                          again == handle && aclrtFreePhysical(handle) == ACL_SUCCESS &&
                          aclrtUnmapMem(at) == ACL_SUCCESS &&
                          aclrtFreePhysical(handle) == ACL_SUCCESS;
        if (!good) wrong = true;
      }
      --mapping;
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
      aclrtStream stream = nullptr;
      ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
      std::vector<char> host(kUnit);
      void* pinned = nullptr;
      ASSERT_EQ(aclrtMallocHost(&pinned, kUnit), ACL_SUCCESS);
      for (size_t n = static_cast<size_t>(i); mapping.load() != 0; ++n) {
        void* at = offset(base, n % kPlaces * kUnit);
        // Refused, or all of it: an address is mapped or it is nothing.
        if (aclrtMemcpy(host.data(), kUnit, at, kUnit, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS) {
          ++copied;
        }
        // Both only read: what two threads write to one place is their own affair.
        if (aclrtMemcpyAsync(pinned, kUnit, at, kUnit, ACL_MEMCPY_DEVICE_TO_HOST, stream) ==
            ACL_SUCCESS) {
          ++copied;
        }
        recent();
      }
      EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
      EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
      EXPECT_EQ(aclrtFreeHost(pinned), ACL_SUCCESS);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_SUCCESS);
}

}  // namespace
