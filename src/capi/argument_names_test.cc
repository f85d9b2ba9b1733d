// P46: whatever is wrong with an argument, the text names it as the declaration does. The names are
// read from the public headers, so a test cannot expect one that a user does not see.

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "acl/acl_rt_allocator.h"
#include "capi/alone.h"

namespace hufu::test {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The names in "aclError NAME(type a, const type* const b)".
std::vector<std::string> parameters_of(const std::string& function) {
  static const std::string headers =
      read(HUFU_HEADERS "/acl_rt.h") + read(HUFU_HEADERS "/acl_rt_allocator.h");
  std::smatch found;
  if (!std::regex_search(headers, found, std::regex("\\b" + function + "\\(([^)]*)\\);")))
    return {};
  std::vector<std::string> names;
  const std::string list = found[1];
  const std::regex last_word("(\\w+)\\s*(?:,|$)");
  for (std::sregex_iterator at(list.begin(), list.end(), last_word), end; at != end; ++at)
    names.push_back((*at)[1]);
  return names;
}

// A function with arguments that are good, or were before one of them is replaced.
template <class... Args>
class Call {
 public:
  Call(std::string name, aclError (*function)(Args...), std::tuple<Args...> good)
      : name_(std::move(name)), function_(function), good_(good), names_(parameters_of(name_)) {
    EXPECT_EQ(names_.size(), sizeof...(Args)) << name_;
  }

  // Every pointer but those in `may_be_null`.
  void null_is_named(const std::vector<std::string>& may_be_null = {}) const {
    each_null(may_be_null, std::index_sequence_for<Args...>());
  }

  template <std::size_t I, class Value>
  const Call& bad(Value value) const {
    auto arguments = good_;
    std::get<I>(arguments) = static_cast<std::tuple_element_t<I, std::tuple<Args...>>>(value);
    expect_named(arguments, I);
    return *this;
  }

 private:
  template <std::size_t... I>
  void each_null(const std::vector<std::string>& may_be_null, std::index_sequence<I...>) const {
    (null<I>(may_be_null), ...);
  }
  template <std::size_t I>
  void null(const std::vector<std::string>& may_be_null) const {
    if constexpr (std::is_pointer_v<std::tuple_element_t<I, std::tuple<Args...>>>) {
      if (std::find(may_be_null.begin(), may_be_null.end(), names_.at(I)) == may_be_null.end()) {
        bad<I>(nullptr);
      }
    }
  }
  void expect_named(const std::tuple<Args...>& arguments, std::size_t index) const {
    recent();
    const aclError code = std::apply(function_, arguments);
    const std::string text = recent();
    EXPECT_NE(code, ACL_SUCCESS) << name_ << ", " << names_.at(index);
    EXPECT_NE(text.find(name_ + ": "), std::string::npos) << text;
    const std::regex word("\\b" + names_.at(index) + "\\b");
    EXPECT_TRUE(std::regex_search(text.substr(text.find(": ") + 2), word))
        << name_ << " does not name " << names_.at(index) << ": " << text;
  }

  std::string name_;
  aclError (*function_)(Args...);
  std::tuple<Args...> good_;
  std::vector<std::string> names_;
};

template <class... Args, class... Given>
Call<Args...> call(std::string name, aclError (*function)(Args...), Given... given) {
  return Call<Args...>(std::move(name), function, std::tuple<Args...>(given...));
}

// Several functions of one type.
template <class Function>
struct Named {
  Named(const char* called, Function* what) : name(called), function(what) {}
  const char* name;
  Function* function;
};

#define HUFU_CALL(function, ...) call(#function, function, __VA_ARGS__)

class P46 : public Alone {
 protected:
  void SetUp() override {
    Alone::SetUp();
    block = allocate(8192);
    ASSERT_EQ(aclrtMallocHost(&host, 4096), ACL_SUCCESS);
    ASSERT_EQ(aclrtMemAllocManaged(&managed, 1, ACL_RT_MEM_ATTACH_GLOBAL), ACL_SUCCESS) << recent();
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
    EXPECT_EQ(aclrtFree(managed), ACL_SUCCESS);
    EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS);
    Alone::TearDown();
  }

  static constexpr size_t kTooMuch = size_t{1} << 40U;

  void* block = nullptr;
  void* host = nullptr;
  void* managed = nullptr;
  void* stream = nullptr;
  void* out = nullptr;
  size_t size = 0;
};

TEST_F(P46, TheHeadersAreRead) {
  EXPECT_EQ(parameters_of("aclrtMemManagedAdvise"),
            (std::vector<std::string>{"ptr", "size", "advise", "location"}));
}

TEST_F(P46, Allocating) {
  const auto policy = ACL_MEM_MALLOC_HUGE_FIRST;
  for (const auto& [name, function] :
       {Named{"aclrtMalloc", aclrtMalloc}, Named{"aclrtMallocAlign32", aclrtMallocAlign32},
        Named{"aclrtMallocCached", aclrtMallocCached}}) {
    const auto tested = call(name, function, &out, size_t{64}, policy);
    tested.null_is_named();
    tested.bad<1>(0).bad<1>(~size_t{0});
  }
  aclrtMallocAttribute attribute{};
  aclrtMallocConfig cfg{&attribute, 1};  // Of the reserved kind, which none takes.
  for (const auto& [name, function] :
       {Named{"aclrtMallocWithCfg", aclrtMallocWithCfg},
        Named{"aclrtMallocForTaskScheduler", aclrtMallocForTaskScheduler}}) {
    const auto tested =
        call(name, function, &out, size_t{64}, policy, static_cast<aclrtMallocConfig*>(nullptr));
    tested.null_is_named({"cfg"});
    tested.bad<1>(0).bad<1>(~size_t{0}).bad<3>(&cfg);
  }
  const auto host_cfg = HUFU_CALL(aclrtMallocHostWithCfg, &out, 64, nullptr);
  host_cfg.null_is_named({"cfg"});
  host_cfg.bad<1>(0).bad<2>(&cfg);
  HUFU_CALL(aclrtMallocHost, &out, 64).bad<0>(nullptr).bad<1>(0);
  const auto global = HUFU_CALL(aclrtMemAllocManaged, &out, 64, 1);
  global.null_is_named();
  global.bad<1>(0).bad<2>(0).bad<2>(2);
}

TEST_F(P46, Freeing) {
  HUFU_CALL(aclrtFree, block).null_is_named();
  HUFU_CALL(aclrtFreeWithDevSync, block).null_is_named();
  HUFU_CALL(aclrtFreeHost, host).null_is_named();
  HUFU_CALL(aclrtFreeHostWithDevSync, host).null_is_named();
}

TEST_F(P46, AskingAboutMemory) {
  std::array<aclrtMemUsageInfo, 1> usage{};
  const auto info = HUFU_CALL(aclrtGetMemInfo, ACL_HBM_MEM, &size, &size);
  info.null_is_named();
  info.bad<0>(18).bad<0>(-1);
  const auto used = HUFU_CALL(aclrtGetMemUsageInfo, 0, usage.data(), usage.size(), &size);
  used.null_is_named();
  used.bad<0>(7).bad<0>(-1).bad<2>(0);
  HUFU_CALL(aclrtMemFlush, block, 64).bad<0>(nullptr).bad<1>(0);
  HUFU_CALL(aclrtMemInvalidate, block, 64).bad<0>(nullptr).bad<1>(0);
  uint32_t answer = 0;
  const auto type = HUFU_CALL(aclrtCheckMemType, &block, 1, ACL_RT_MEM_TYPE_DEV, &answer, 0);
  type.null_is_named();
  type.bad<1>(0).bad<2>(0x10).bad<4>(1);
  aclrtPtrAttributes attributes{};
  HUFU_CALL(aclrtPointerGetAttributes, block, &attributes).null_is_named();
  HUFU_CALL(aclrtMemGetAddressRange, block, &out, &size).bad<0>(nullptr);
  const auto peer = HUFU_CALL(aclrtMemP2PMap, block, 4096, 1, 0);
  peer.null_is_named();
  peer.bad<0>(host).bad<1>(0).bad<1>(kTooMuch).bad<2>(2).bad<2>(-1).bad<3>(1);
}

TEST_F(P46, RegisteringHostMemory) {
  const auto one = HUFU_CALL(aclrtHostRegister, host, 64, ACL_HOST_REGISTER_MAPPED, &out);
  one.null_is_named();
  one.bad<0>(static_cast<char*>(host) + 1).bad<0>(host).bad<0>(block).bad<1>(0).bad<2>(2);
  const auto two = HUFU_CALL(aclrtHostRegisterV2, host, 64, ACL_HOST_REG_MAPPED);
  two.null_is_named();
  two.bad<0>(host).bad<1>(0).bad<2>(0).bad<2>(1);
  HUFU_CALL(aclrtHostUnregister, host).bad<0>(nullptr).bad<0>(host);
  const auto device = HUFU_CALL(aclrtHostGetDevicePointer, host, &out, 0);
  device.null_is_named();
  device.bad<0>(host).bad<2>(1);
  aclrtHostMemMapCapability capability{};
  const auto units = HUFU_CALL(aclrtHostMemMapCapabilities, 0, ACL_RT_HAC_TYPE_AIC, &capability);
  units.null_is_named();
  units.bad<0>(2).bad<1>(10);
}

TEST_F(P46, HintsAboutManagedMemory) {
  const aclrtMemManagedLocation here{ACL_MEM_LOCATIONTYPE_DEVICE, 0};
  const aclrtMemManagedLocation nowhere{ACL_MEM_LOCATIONTYPE_DEVICE, 2};
  const auto advise =
      HUFU_CALL(aclrtMemManagedAdvise, managed, 64, ACL_MEM_ADVISE_SET_ACCESSED_BY, here);
  advise.null_is_named();
  advise.bad<1>(0).bad<1>(kTooMuch).bad<2>(6).bad<3>(nowhere).bad<3>(aclrtMemManagedLocation{});
  const auto prefetch = HUFU_CALL(aclrtMemManagedPrefetchAsync, managed, 64, here, 0, stream);
  prefetch.null_is_named({"stream"});
  prefetch.bad<1>(0).bad<1>(kTooMuch).bad<2>(nowhere).bad<3>(1);
  const void* ptrs = managed;
  const void* no_ptr = nullptr;
  size_t sizes = 64;
  size_t no_size = 0;
  aclrtMemManagedLocation places = here;
  aclrtMemManagedLocation no_places = nowhere;
  size_t first = 0;
  size_t late = 1;
  const auto batch =
      HUFU_CALL(aclrtMemManagedPrefetchBatchAsync, &ptrs, &sizes, 1, &places, &first, 1, 0, stream);
  batch.null_is_named({"stream"});
  batch.bad<0>(&no_ptr).bad<1>(&no_size).bad<2>(0).bad<3>(&no_places).bad<4>(&late);
  batch.bad<5>(0).bad<5>(2).bad<6>(1);
  int32_t value = 0;
  const auto get = HUFU_CALL(aclrtMemManagedGetAttr, ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed,
                             64, &value, sizeof(value));
  get.null_is_named();
  get.bad<0>(0).bad<0>(9).bad<2>(0).bad<2>(kTooMuch).bad<4>(8).bad<4>(0);
  aclrtMemManagedRangeAttribute attribute = ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
  void* data = &value;
  void* no_data = nullptr;
  size_t bytes = sizeof(value);
  const auto several =
      HUFU_CALL(aclrtMemManagedGetAttrs, &attribute, 1, managed, 64, &data, &bytes);
  several.null_is_named();
  several.bad<1>(0).bad<3>(0).bad<4>(&no_data);
}

TEST_F(P46, DescribingAnAllocator) {
  const aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
  const aclrtAllocatorAllocFunc alloc = [](void* object, size_t) { return object; };
  const aclrtAllocatorFreeFunc release = [](void*, void*) {};
  const aclrtAllocatorAllocAdviseFunc advise = [](void* object, size_t, void*) { return object; };
  const aclrtAllocatorGetAddrFromBlockFunc address = [](void* of) { return of; };
  HUFU_CALL(aclrtAllocatorSetObjToDesc, desc, this).null_is_named();
  HUFU_CALL(aclrtAllocatorSetAllocFuncToDesc, desc, alloc).null_is_named();
  HUFU_CALL(aclrtAllocatorSetFreeFuncToDesc, desc, release).null_is_named();
  HUFU_CALL(aclrtAllocatorSetAllocAdviseFuncToDesc, desc, advise).null_is_named();
  HUFU_CALL(aclrtAllocatorSetGetAddrFromBlockFuncToDesc, desc, address).null_is_named();
  const auto add = HUFU_CALL(aclrtAllocatorRegister, stream, desc);
  add.null_is_named();
  add.bad<0>(block).bad<1>(block).bad<1>(desc);  // It lacks everything.
  HUFU_CALL(aclrtAllocatorUnregister, stream).null_is_named();
  aclrtAllocatorDesc found = nullptr;
  const auto get = HUFU_CALL(aclrtAllocatorGetByStream, stream, &found, nullptr, nullptr, nullptr,
                             nullptr, nullptr);
  get.bad<0>(nullptr).bad<0>(stream).bad<1>(nullptr);
  HUFU_CALL(aclrtAllocatorDestroyDesc, desc).bad<0>(nullptr).bad<0>(block);
  EXPECT_EQ(aclrtAllocatorDestroyDesc(desc), ACL_SUCCESS);
}

}  // namespace
}  // namespace hufu::test
