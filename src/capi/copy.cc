// Copies and sets. The arguments of a batch are in copy_batch.cc.

#include "runtime/copy.h"

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::CopyKind;
using hufu::runtime::Here;
using hufu::runtime::Pageable;
using hufu::runtime::Rows;
using hufu::runtime::WordFill;

static_assert(static_cast<int>(CopyKind::kHostToHost) == ACL_MEMCPY_HOST_TO_HOST &&
              static_cast<int>(CopyKind::kHostToDevice) == ACL_MEMCPY_HOST_TO_DEVICE &&
              static_cast<int>(CopyKind::kDeviceToHost) == ACL_MEMCPY_DEVICE_TO_HOST &&
              static_cast<int>(CopyKind::kDeviceToDevice) == ACL_MEMCPY_DEVICE_TO_DEVICE &&
              static_cast<int>(CopyKind::kDefault) == ACL_MEMCPY_DEFAULT &&
              static_cast<int>(CopyKind::kHostToBufferToDevice) ==
                  ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE);

namespace {

Result<void> check(const void* dst, const void* src, aclrtMemcpyKind kind) {
  if (dst == nullptr) return null_argument("dst");
  if (src == nullptr) return null_argument("src");
  if (static_cast<unsigned>(kind) > ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "kind is {}; pass 0 to {}, or ACL_MEMCPY_DEFAULT to let the addresses decide",
                static_cast<int>(kind), static_cast<int>(ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE));
  }
  return {};
}

}  // namespace

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  if (count == 0) return ACL_SUCCESS;  // Before any other check, as the contract has it.
  return answer([&]() -> Result<void> {
    if (auto good = check(dst, src, kind); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy(*here->runtime, dst, destMax, src, count,
                               static_cast<CopyKind>(kind));
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  if (count == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::fill(*here->runtime, devPtr, maxCount, value, count);
  });
}

namespace {

aclError copy_on(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                 aclrtStream stream, Pageable pageable, const char* function) {
  if (count == 0) return ACL_SUCCESS;
  return answer(
      [&]() -> Result<void> {
        if (auto good = check(dst, src, kind); !good) return good;
        const auto here = Here::get();
        if (!here) return here.error();
        return hufu::runtime::copy_on(*here->runtime, {.stream = stream, .context = here->context},
                                      dst, destMax, src, count, static_cast<CopyKind>(kind),
                                      pageable);
      },
      {}, function);
}

}  // namespace

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  return copy_on(dst, destMax, src, count, kind, stream, Pageable::kCopiedAtOnce, __func__);
}

aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t destMax, const void* src, size_t count,
                                       aclrtMemcpyKind kind, aclrtStream stream) {
  return copy_on(dst, destMax, src, count, kind, stream, Pageable::kRefused, __func__);
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream) {
  if (count == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::fill_on(*here->runtime, {.stream = stream, .context = here->context},
                                  devPtr, maxCount, value, count);
  });
}

// --- Words ---------------------------------------------------------------------------------------

namespace {

Result<WordFill> word_fill(void* ptr, size_t memSize, uint32_t value, size_t words) {
  if (ptr == nullptr) return null_argument("ptr");
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  if (address % sizeof(value) != 0) {
    return fail(
        Errc::kInvalidArgument, Reason::kNotAligned,
        "ptr {:#x} is not aligned for words of 4 bytes; it lies {} bytes behind one that is",
        address, address % sizeof(value));
  }
  if (memSize / sizeof(value) < words) {
    return fail(Errc::kInvalidArgument, Reason::kOutOfRange,
                "memSize {} has room for {} words of 4 bytes, and N is {}", memSize,
                memSize / sizeof(value), words);
  }
  return WordFill{.to = ptr, .words = words, .value = value};
}

constexpr hufu::capi::StrictCode kPlainMemoryIsAnArgument{ACL_ERROR_INVALID_PARAM};

}  // namespace

aclError aclrtMemsetD32(void* ptr, size_t memSize, uint32_t value, size_t N) {
  if (N == 0) return ACL_SUCCESS;
  return answer(
      [&]() -> Result<void> {
        const auto what = word_fill(ptr, memSize, value, N);
        if (!what) return what.error();
        const auto here = Here::get();
        if (!here) return here.error();
        return hufu::runtime::fill(*here->runtime, *what);
      },
      kPlainMemoryIsAnArgument);
}

aclError aclrtMemsetD32Async(void* ptr, size_t memSize, uint32_t value, size_t N,
                             aclrtStream stream) {
  if (N == 0) return ACL_SUCCESS;
  return answer(
      [&]() -> Result<void> {
        const auto what = word_fill(ptr, memSize, value, N);
        if (!what) return what.error();
        const auto here = Here::get();
        if (!here) return here.error();
        return hufu::runtime::fill_on(*here->runtime, {.stream = stream, .context = here->context},
                                      *what);
      },
      kPlainMemoryIsAnArgument);
}

// --- Rows ----------------------------------------------------------------------------------------

namespace {

Result<void> check(const Rows& rows, aclrtMemcpyKind kind) {
  if (rows.to == nullptr) return null_argument("dst");
  if (rows.from == nullptr) return null_argument("src");
  if (kind < ACL_MEMCPY_HOST_TO_DEVICE || kind > ACL_MEMCPY_DEFAULT) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "kind is {}; pass {} to {}, or ACL_MEMCPY_DEFAULT to let the addresses decide",
                static_cast<int>(kind), static_cast<int>(ACL_MEMCPY_HOST_TO_DEVICE),
                static_cast<int>(ACL_MEMCPY_DEVICE_TO_DEVICE));
  }
  if (rows.width > rows.to_pitch || rows.width > rows.from_pitch) {
    return fail(Errc::kInvalidArgument, Reason::kOutOfRange,
                "width {} exceeds a pitch (dpitch {}, spitch {}); rows must not overlap",
                rows.width, rows.to_pitch, rows.from_pitch);
  }
  return {};
}

}  // namespace

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                       size_t height, aclrtMemcpyKind kind) {
  if (width == 0 || height == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    const Rows rows{.to = dst,
                    .to_pitch = dpitch,
                    .from = src,
                    .from_pitch = spitch,
                    .width = width,
                    .height = height};
    if (auto good = check(rows, kind); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy(*here->runtime, rows, static_cast<CopyKind>(kind));
  });
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                            size_t height, aclrtMemcpyKind kind, aclrtStream stream) {
  if (width == 0 || height == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    const Rows rows{.to = dst,
                    .to_pitch = dpitch,
                    .from = src,
                    .from_pitch = spitch,
                    .width = width,
                    .height = height};
    if (auto good = check(rows, kind); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy_on(*here->runtime, {.stream = stream, .context = here->context},
                                  rows, static_cast<CopyKind>(kind));
  });
}
