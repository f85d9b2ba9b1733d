// The C++ face without a broker: what its objects are and when they end. examples/04_objects.cc has
// two processes.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "hufu/hufu.hpp"

namespace {

template <class T>
constexpr bool kMovesOnly =
    std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;

static_assert(kMovesOnly<hufu::Allocation> && kMovesOnly<hufu::HostAllocation> &&
              kMovesOnly<hufu::SharedKey> && kMovesOnly<hufu::Import> &&
              kMovesOnly<hufu::PhysicalMemory> && kMovesOnly<hufu::Mapping> &&
              kMovesOnly<hufu::Pool> && kMovesOnly<hufu::PoolAllocation>);

void must(bool holds, const char* what) {
  if (holds) return;
  std::printf("this was expected and is not so: %s\n", what);
  std::exit(1);
}

bool is_memory(void* at) {
  std::size_t size = 0;
  return aclrtMemGetAddressRange(at, nullptr, &size) == ACL_SUCCESS;
}

void allocations_end_once() {
  void* first = nullptr;
  {
    hufu::Allocation a(4096);
    first = a.data();
    hufu::Allocation b(std::move(a));
    must(b.data() == first && a.data() == nullptr, "a move leaves nothing");
    hufu::Allocation c(8192);
    void* const second = c.data();
    c = std::move(b);
    must(!is_memory(second), "assigning ends what was there");
    must(is_memory(first), "and keeps what comes");
  }
  must(!is_memory(first), "the end frees");
  const hufu::HostAllocation host(100);
  std::memset(host.data(), 1, host.size());
  void* kept = hufu::Allocation(4096).release();
  must(aclrtFree(kept) == ACL_SUCCESS, "what was released is the caller's");
}

void a_mapping_outlives_its_memory() {
  const std::size_t unit = hufu::PhysicalMemory::granularity();
  auto* memory = new hufu::PhysicalMemory(unit);
  void* at = nullptr;
  {
    const hufu::Mapping mapping(*memory);
    at = mapping.data();
    delete memory;
    std::memset(mapping.data(), 3, mapping.size());
  }
  must(!is_memory(at), "a mapping's end unmaps");
}

void a_pool_is_empty_when_its_pieces_have_ended() {
  aclrtStream stream = nullptr;
  must(aclrtCreateStream(&stream) == ACL_SUCCESS, "there are streams");
  hufu::Pool pool(8 << 20);
  {
    hufu::PoolAllocation piece = pool.allocate(1000, stream);
    std::memset(piece.data(), 4, piece.size());
    must(pool.used() >= 1000, "a piece is in use");
  }
  must(pool.used() == 0, "and not after its end");
  auto piece = pool.allocate(1000, stream);
  must(aclrtDestroyStream(stream) == ACL_SUCCESS, "a stream may end first");
}

void failures_say_why() {
  try {
    const hufu::Allocation nothing(0);
    must(false, "0 bytes are no allocation");
  } catch (const hufu::Error& error) {
    must(error.code() == ACL_ERROR_INVALID_PARAM, "the code is the call's");
    must(std::strstr(error.what(), "aclrtMalloc") != nullptr, "the text names the call");
    must(std::strstr(error.what(), "size") != nullptr, "and what is wrong with it");
  }
}

}  // namespace

int main() {
  must(aclrtSetDevice(0) == ACL_SUCCESS, "there is a device");
  allocations_end_once();
  a_mapping_outlives_its_memory();
  a_pool_is_empty_when_its_pieces_have_ended();
  failures_say_why();
  return 0;
}
