#ifndef HUFU_HUFU_HUFU_HPP_
#define HUFU_HUFU_HUFU_HPP_

// Hufu for C++17 and later: every piece of memory and every share is an object that ends what it
// stands for. Nothing is implemented here: each member is the C call that it names.
//
//   Allocation       device memory                          aclrtMalloc
//   HostAllocation   host memory that the runtime knows      aclrtMallocHost
//   SharedKey        an export of device memory by key       aclrtIpcMemGetExportKey
//   Import           another process's memory, by its key    aclrtIpcMemImportByKey
//   PhysicalMemory   memory without an address               aclrtMallocPhysical
//   Mapping          its address in this process             aclrtReserveMemAddress, aclrtMapMem
//   Pool             allocation in stream order              aclrtMemPoolCreate
//   PoolAllocation   a piece of a pool                       aclrtMemPoolMallocAsync
//
//   hufu::Allocation block(1 << 20);                          // in one process
//   hufu::SharedKey key(block.data(), block.size());
//   key.allow(importers_pid);
//   send(key.text());
//
//   hufu::Import tensor(received_text);                       // in the other one
//   use(tensor.as<float>(), tensor.size() / sizeof(float));
//
// Objects can be moved and not copied. A moved-from object may be assigned to or destroyed. What
// fails throws hufu::Error, which holds the C call's code and the library's text for it; a
// destructor ignores failures. An object is as thread-safe as an int: one thread at a time, unless
// all only read. Objects may end in any order, an exporter's before its importers'.
//
// The thread must have a current device: aclrtSetDevice.

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "hufu/hufu.h"

namespace hufu {
inline namespace v1 {

class Error : public std::runtime_error {
 public:
  Error(const char* call, aclError code, const char* text)
      : std::runtime_error(std::string(call) + ": " + std::to_string(code) +
                           (text != nullptr ? std::string(": ") + text : std::string())),
        code_(code) {}

  // As the C call returned it (acl_base_rt.h).
  aclError code() const noexcept { return code_; }

 private:
  aclError code_;
};

namespace detail {

inline void check(const char* call, aclError code) {
  if (code != ACL_SUCCESS) throw Error(call, code, aclGetRecentErrMsg());
}

inline std::int32_t current_device() {
  std::int32_t device = 0;
  check("aclrtGetDevice", aclrtGetDevice(&device));
  return device;
}

// The bytes from `data` to the end of what it lies in. May be a few more than were asked for.
inline std::size_t size_at(void* data) {
  void* base = nullptr;
  std::size_t size = 0;
  check("aclrtMemGetAddressRange", aclrtMemGetAddressRange(data, &base, &size));
  return size - static_cast<std::size_t>(static_cast<char*>(data) - static_cast<char*>(base));
}

// What is there to be ended, at most once, by `end`. T{} is nothing.
template <class T, void (*end)(T&) noexcept>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T value) : value_(std::move(value)) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, T{});
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  const T& get() const noexcept { return value_; }
  T release() noexcept { return std::exchange(value_, T{}); }

 private:
  void reset() noexcept {
    if (!(value_ == T{})) end(value_);
    value_ = T{};
  }

  T value_{};
};

inline void free_device(void*& data) noexcept { (void)aclrtFree(data); }
inline void free_host(void*& data) noexcept { (void)aclrtFreeHost(data); }
inline void free_physical(aclrtDrvMemHandle& handle) noexcept { (void)aclrtFreePhysical(handle); }
inline void destroy_pool(aclrtMemPool& pool) noexcept { (void)aclrtMemPoolDestroy(pool); }

// Overwritten before it is forgotten: who reads a key may import it.
inline void forget(std::string& key) noexcept {
  volatile char* bytes = key.data();
  for (std::size_t i = 0; i < key.size(); ++i)
    bytes[i] = 0;
}
inline void close_key(std::string& key) noexcept {
  (void)aclrtIpcMemClose(key.c_str());
  forget(key);
}

struct MappedRange {
  void* at = nullptr;
  bool reserved = false;  // The addresses are the mapping's own.

  bool operator==(const MappedRange& other) const { return at == other.at; }
};
inline void unmap(MappedRange& range) noexcept {
  (void)aclrtUnmapMem(range.at);
  if (range.reserved) (void)aclrtReleaseMemAddress(range.at);
}

struct PoolPiece {
  void* data = nullptr;
  aclrtStream stream = nullptr;  // Null: freed at once.

  bool operator==(const PoolPiece& other) const { return data == other.data; }
};
inline void free_piece(PoolPiece& piece) noexcept {
  // A stream that was destroyed meanwhile orders nothing any more.
  const bool ordered =
      piece.stream != nullptr && aclrtMemPoolFreeAsync(piece.data, piece.stream) == ACL_SUCCESS;
  if (!ordered) (void)aclrtFree(piece.data);
}

}  // namespace detail

// Device memory of the current device. Its contents are not zeroed; the address is a multiple of
// 64, and a page's start when `size` is at least 4096, as an export needs.
class Allocation {
 public:
  explicit Allocation(std::size_t size, aclrtMemMallocPolicy policy = ACL_MEM_MALLOC_HUGE_FIRST)
      : size_(size) {
    void* data = nullptr;
    detail::check("aclrtMalloc", aclrtMalloc(&data, size, policy));
    data_ = Data(data);
  }

  void* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }  // Bytes, as asked.
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data());
  }
  // From now on the caller's, to be freed with aclrtFree.
  void* release() noexcept { return data_.release(); }

 private:
  using Data = detail::Owned<void*, detail::free_device>;
  Data data_;
  std::size_t size_ = 0;
};

// Host memory for copies that are queued on streams.
class HostAllocation {
 public:
  explicit HostAllocation(std::size_t size) : size_(size) {
    void* data = nullptr;
    detail::check("aclrtMallocHost", aclrtMallocHost(&data, size));
    data_ = Data(data);
  }

  void* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data());
  }
  // From now on the caller's, to be freed with aclrtFreeHost.
  void* release() noexcept { return data_.release(); }

 private:
  using Data = detail::Owned<void*, detail::free_host>;
  Data data_;
  std::size_t size_ = 0;
};

// May be combined with |.
enum class Share : std::uint64_t {
  kListed = ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT,  // Only processes that allow() names.
  kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION,
  kReadOnly = HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY,
};
constexpr Share operator|(Share a, Share b) {
  return static_cast<Share>(static_cast<std::uint64_t>(a) | static_cast<std::uint64_t>(b));
}

// A key to a range of this process's memory. When it ends, nobody can import the range by this key
// any more; who has imported it keeps it. The memory must live as long as somebody may import it.
class SharedKey {
 public:
  SharedKey(void* data, std::size_t size, Share share = Share::kListed) {
    std::array<char, 65> text{};
    detail::check("aclrtIpcMemGetExportKey",
                  aclrtIpcMemGetExportKey(data, size, text.data(), text.size(),
                                          static_cast<std::uint64_t>(share)));
    key_ = Key(std::string(text.data()));
    text.fill(0);
  }

  // A secret of 64 characters, to be sent to the importer.
  const std::string& text() const noexcept { return key_.get(); }
  // Names the share in logs and listings.
  std::string public_id() const {
    std::array<char, HUFU_PUBLIC_ID_SIZE> id{};
    detail::check("hufuIpcMemGetPublicId", hufuIpcMemGetPublicId(text().c_str(), id.data()));
    return id.data();
  }

  // A process that exists, by what aclrtDeviceGetBareTgid says in it.
  void allow(std::int32_t pid) {
    detail::check("aclrtIpcMemSetImportPid", aclrtIpcMemSetImportPid(text().c_str(), &pid, 1));
  }
  void allow_pidfd(int pidfd) {
    detail::check("hufuIpcMemSetImportPidfd", hufuIpcMemSetImportPidfd(text().c_str(), pidfd));
  }

  // Until no process has it imported; -1 is for ever. An Error with code 507012 after `timeout_ms`.
  void wait_released(std::int32_t timeout_ms = -1) {
    detail::check("hufuIpcMemWaitReleased", hufuIpcMemWaitReleased(text().c_str(), timeout_ms));
  }

 private:
  using Key = detail::Owned<std::string, detail::close_key>;
  Key key_;
};

// Another process's memory, mapped here. The same key may be imported several times: the address is
// the same, and it stays until the last Import ends.
class Import {
 public:
  explicit Import(const std::string& key) {
    detail::check("aclrtIpcMemImportByKey",
                  aclrtIpcMemImportByKey(&data_, key.c_str(), ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT));
    key_ = Key(key);
    size_ = detail::size_at(data_);
  }

  void* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }  // Bytes, as exported.
  bool read_only() const {                             // Asks the broker.
    hufuIpcMemInfo info{};
    info.structSize = sizeof info;
    detail::check("hufuIpcMemQuery", hufuIpcMemQuery(key_.get().c_str(), &info));
    return info.access == 1;
  }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data());
  }

 private:
  using Key = detail::Owned<std::string, detail::close_key>;
  Key key_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Memory of the current device without an address; a Mapping gives it one. It lives until this and
// all Mappings and imports of it have ended.
class PhysicalMemory {
 public:
  // `size` is a multiple of granularity().
  explicit PhysicalMemory(std::size_t size) : size_(size) {
    const aclrtPhysicalMemProp properties = properties_here();
    aclrtDrvMemHandle handle = nullptr;
    detail::check("aclrtMallocPhysical", aclrtMallocPhysical(&handle, size, &properties, 0));
    handle_ = Handle(handle);
  }
  // What another process shared: `size` is what its size() is there.
  static PhysicalMemory import(std::uint64_t token, std::size_t size) {
    aclrtDrvMemHandle handle = nullptr;
    detail::check("aclrtMemImportFromShareableHandle",
                  aclrtMemImportFromShareableHandle(token, detail::current_device(), &handle));
    return PhysicalMemory(handle, size);
  }

  static std::size_t granularity() {
    aclrtPhysicalMemProp properties = properties_here();
    std::size_t bytes = 0;
    detail::check("aclrtMemGetAllocationGranularity",
                  aclrtMemGetAllocationGranularity(
                      &properties, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &bytes));
    return bytes;
  }

  aclrtDrvMemHandle handle() const noexcept { return handle_.get(); }
  std::size_t size() const noexcept { return size_; }

  // A token that importers name it by, once for each memory. It is a secret and ends with this.
  std::uint64_t share(bool any_process = false) const {
    std::uint64_t token = 0;
    detail::check(
        "aclrtMemExportToShareableHandle",
        aclrtMemExportToShareableHandle(handle(), ACL_MEM_HANDLE_TYPE_NONE,
                                        any_process ? ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION
                                                    : ACL_RT_VMM_EXPORT_FLAG_DEFAULT,
                                        &token));
    return token;
  }
  // A process that exists, by what aclrtDeviceGetBareTgid says in it.
  static void allow(std::uint64_t token, std::int32_t pid) {
    detail::check("aclrtMemSetPidToShareableHandle",
                  aclrtMemSetPidToShareableHandle(token, &pid, 1));
  }

 private:
  PhysicalMemory(aclrtDrvMemHandle handle, std::size_t size) : handle_(handle), size_(size) {}

  static aclrtPhysicalMemProp properties_here() {
    aclrtPhysicalMemProp properties{};
    properties.handleType = ACL_MEM_HANDLE_TYPE_NONE;
    properties.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
    properties.memAttr = ACL_HBM_MEM_HUGE;
    properties.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = static_cast<std::uint32_t>(detail::current_device());
    return properties;
  }

  using Handle = detail::Owned<aclrtDrvMemHandle, detail::free_physical>;
  Handle handle_;
  std::size_t size_ = 0;
};

// Physical memory at an address of this process, which may read and write it.
class Mapping {
 public:
  // At addresses of its own.
  explicit Mapping(const PhysicalMemory& memory) : size_(memory.size()) {
    void* at = nullptr;
    detail::check("aclrtReserveMemAddress", aclrtReserveMemAddress(&at, size_, 0, nullptr, 0));
    const aclError code = aclrtMapMem(at, size_, 0, memory.handle(), 0);
    if (code != ACL_SUCCESS) {
      const Error error("aclrtMapMem", code, aclGetRecentErrMsg());
      (void)aclrtReleaseMemAddress(at);
      throw error;
    }
    range_ = Range({at, true});
  }
  // Where the caller has reserved addresses, which stay reserved when this ends.
  Mapping(const PhysicalMemory& memory, void* at) : size_(memory.size()) {
    detail::check("aclrtMapMem", aclrtMapMem(at, size_, 0, memory.handle(), 0));
    range_ = Range({at, false});
  }

  void* data() const noexcept { return range_.get().at; }
  std::size_t size() const noexcept { return size_; }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data());
  }

 private:
  using Range = detail::Owned<detail::MappedRange, detail::unmap>;
  Range range_;
  std::size_t size_ = 0;
};

// A piece of a pool. It must end before its pool; after that it ends nothing.
class PoolAllocation {
 public:
  void* data() const noexcept { return piece_.get().data; }
  std::size_t size() const noexcept { return size_; }  // Bytes; the importer's may be rounded up.
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data());
  }
  // 64 bytes that stand for it in every process that imported the pool.
  aclrtMemPoolPtrExportData share() const {
    aclrtMemPoolPtrExportData pointer{};
    detail::check("aclrtMemPoolExportPointer", aclrtMemPoolExportPointer(data(), &pointer));
    return pointer;
  }

 private:
  friend class Pool;
  PoolAllocation(detail::PoolPiece piece, std::size_t size) : piece_(piece), size_(size) {}

  detail::Owned<detail::PoolPiece, detail::free_piece> piece_;
  std::size_t size_ = 0;
};

// Memory for many allocations, in stream order; and for sharing many of them at once: who imports
// the pool may import every pointer into it without asking anybody again.
class Pool {
 public:
  // Of the current device. Takes memory as it is used, `max_size` bytes at most; 0 is the device.
  explicit Pool(std::size_t max_size = 0) {
    aclrtMemPoolProps properties{};
    properties.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleType = ACL_MEM_HANDLE_TYPE_NONE;
    properties.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = static_cast<std::uint32_t>(detail::current_device());
    properties.maxSize = max_size;
    aclrtMemPool pool = nullptr;
    detail::check("aclrtMemPoolCreate", aclrtMemPoolCreate(&pool, &properties));
    pool_ = Handle(pool);
  }
  // What another process shared. Nothing can be allocated from it here.
  static Pool import(std::uint64_t token) {
    aclrtMemPool pool = nullptr;
    detail::check("aclrtMemPoolImportFromShareableHandle",
                  aclrtMemPoolImportFromShareableHandle(token, detail::current_device(), &pool));
    return Pool(pool);
  }

  aclrtMemPool get() const noexcept { return pool_.get(); }

  // For work that is queued on `stream` after this; freed in its order, too. `size` is not 0.
  PoolAllocation allocate(std::size_t size, aclrtStream stream) {
    void* data = nullptr;
    detail::check("aclrtMemPoolMallocAsync", aclrtMemPoolMallocAsync(&data, size, get(), stream));
    return PoolAllocation({data, stream}, size);
  }

  // A token that importers name the pool by. It is a secret and ends with the pool.
  std::uint64_t share(Share share = Share::kListed) const {
    std::uint64_t token = 0;
    detail::check("aclrtMemPoolExportToShareableHandle",
                  aclrtMemPoolExportToShareableHandle(get(), ACL_MEM_HANDLE_TYPE_NONE,
                                                      static_cast<std::uint64_t>(share), &token));
    return token;
  }
  // A process that exists, by what aclrtDeviceGetBareTgid says in it.
  static void allow(std::uint64_t token, std::int32_t pid) { PhysicalMemory::allow(token, pid); }
  // A pointer into this imported pool.
  PoolAllocation import_pointer(const aclrtMemPoolPtrExportData& pointer) {
    void* data = nullptr;
    detail::check("aclrtMemPoolImportPointer", aclrtMemPoolImportPointer(get(), &pointer, &data));
    PoolAllocation imported({data, nullptr}, 0);
    imported.size_ = detail::size_at(data);
    return imported;
  }

  // Gives back what is free, until `keep` bytes are left.
  void trim(std::size_t keep = 0) {
    detail::check("aclrtMemPoolTrimTo", aclrtMemPoolTrimTo(get(), keep));
  }
  std::uint64_t used() const { return attribute(ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT); }
  std::uint64_t reserved() const { return attribute(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT); }

 private:
  explicit Pool(aclrtMemPool pool) : pool_(pool) {}

  std::uint64_t attribute(aclrtMemPoolAttr name) const {
    std::uint64_t value = 0;
    detail::check("aclrtMemPoolGetAttr", aclrtMemPoolGetAttr(get(), name, &value));
    return value;
  }

  using Handle = detail::Owned<aclrtMemPool, detail::destroy_pool>;
  Handle pool_;
};

}  // namespace v1
}  // namespace hufu

#endif  // HUFU_HUFU_HUFU_HPP_
