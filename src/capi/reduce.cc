// Reductions.

#include "runtime/reduce.h"

#include <optional>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::Combine;
using hufu::runtime::Element;
using hufu::runtime::Here;

namespace {

std::optional<Element> element_of(int type) {
  switch (type) {
    case ACL_FLOAT:
      return Element::kFloat;
    case ACL_FLOAT16:
      return Element::kFloat16;
    case ACL_BF16:
      return Element::kBfloat16;
    case ACL_DOUBLE:
      return Element::kDouble;
    case ACL_INT8:
      return Element::kInt8;
    case ACL_INT16:
      return Element::kInt16;
    case ACL_INT32:
      return Element::kInt32;
    case ACL_INT64:
      return Element::kInt64;
    case ACL_UINT8:
      return Element::kUint8;
    case ACL_UINT16:
      return Element::kUint16;
    case ACL_UINT32:
      return Element::kUint32;
    case ACL_UINT64:
      return Element::kUint64;
    default:
      return {};
  }
}

Result<Combine> combine_of(aclrtReduceKind kind) {
  switch (kind) {
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM:
      return Combine::kSum;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX:
      return Combine::kMax;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN:
      return Combine::kMin;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL:
      return fail(Errc::kNotSupported, Reason::kNone,
                  "kind {} (EQUAL) is not built: no document says what it stores",
                  static_cast<int>(kind));
  }
  return fail(Errc::kInvalidValue, Reason::kNone, "kind is {}; pass a value of aclrtReduceKind",
              static_cast<int>(kind));
}

}  // namespace

aclError aclrtReduceAsync(void* dst, const void* src, uint64_t count, aclrtReduceKind kind,
                          aclDataType type, aclrtStream stream, void* reserve) {
  return answer([&]() -> Result<void> {
    if (dst == nullptr) return null_argument("dst");
    if (src == nullptr) return null_argument("src");
    const auto element = element_of(type);
    if (!element) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "type is {}; pass an integer of 8 to 64 bits, ACL_FLOAT, ACL_DOUBLE, ACL_FLOAT16 "
                  "or ACL_BF16",
                  static_cast<int>(type));
    }
    const auto how = combine_of(kind);
    if (!how) return how.error();
    if (reserve != nullptr) {
      return fail(Errc::kInvalidValue, Reason::kNone, "reserve is {}; it is reserved, pass null",
                  reserve);
    }
    const auto here = Here::get();
    if (!here) return here.error();
    if (count == 0) return {};
    return hufu::runtime::reduce_on(
        *here->runtime, {.stream = stream, .context = here->context},
        {.to = dst, .from = src, .count = count, .how = *how, .element = *element});
  });
}
