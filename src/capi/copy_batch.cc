// Copies of many pieces in one call.
//
// The caller describes the pieces in columns, and says once for a run of pieces where their sides
// lie: attrsIndexes[k] is the first piece of which attrs[k] speaks. Here the columns become rows,
// and what is wrong with them is found before anything is looked up.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/copy.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::Claim;
using hufu::runtime::ClaimedPiece;
using hufu::runtime::Contexts;
using hufu::runtime::Here;
using hufu::runtime::Side;

namespace {

constexpr size_t kMostAtOnce = 4096;
constexpr size_t kNoneToBlame = SIZE_MAX;

struct Columns {
  void** dsts;
  size_t* room;
  void** srcs;
  size_t* sizes;
  size_t count;
  aclrtMemcpyBatchAttr* attrs;
  size_t* firsts;  // Where each attribute begins.
  size_t attr_count;
};

// The rest of a refusal depends on the call; `at_fault` is its failIndex.
Result<void> check_arguments(const Columns& columns, size_t& at_fault) {
  if (columns.dsts == nullptr) return null_argument("dsts");
  if (columns.room == nullptr) return null_argument("destMaxs");
  if (columns.srcs == nullptr) return null_argument("srcs");
  if (columns.sizes == nullptr) return null_argument("sizes");
  if (columns.attrs == nullptr) return null_argument("attrs");
  if (columns.firsts == nullptr) return null_argument("attrsIndexes");
  if (columns.count == 0) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "numBatches is 0; pass the number of pieces in dsts, srcs and sizes");
  }
  for (size_t i = 0; i < columns.count; ++i) {
    if (columns.sizes[i] > columns.room[i]) {
      at_fault = i;
      return fail(Errc::kInvalidArgument, Reason::kOutOfRange,
                  "sizes[{}] {} exceeds destMaxs[{}] {}; pass the destination's size there", i,
                  columns.sizes[i], i, columns.room[i]);
    }
    if (columns.sizes[i] != 0 && (columns.dsts[i] == nullptr || columns.srcs[i] == nullptr)) {
      at_fault = i;
      return fail(Errc::kInvalidArgument, Reason::kNone, "{}[{}] is null, and sizes[{}] is {}",
                  columns.dsts[i] == nullptr ? "dsts" : "srcs", i, i, columns.sizes[i]);
    }
  }
  for (size_t k = 0; k < std::min(columns.attr_count, columns.count); ++k) {
    const auto& reserved = columns.attrs[k].rsv;
    if (std::any_of(std::begin(reserved), std::end(reserved), [](uint8_t b) { return b != 0; })) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "attrs[{}].rsv is not all zero; clear the attribute before setting it", k);
    }
  }
  return {};
}

Result<void> check_attributes(const Columns& columns) {
  if (columns.attr_count == 0 || columns.attr_count > columns.count) {
    return fail(
        Errc::kInvalidValue, Reason::kOutOfRange,
        "numAttrs is {}, and numBatches {}; pass at least one attribute and at most one for "
        "each piece",
        columns.attr_count, columns.count);
  }
  for (size_t k = 0; k < columns.attr_count; ++k) {
    const bool rises = k == 0 ? columns.firsts[0] == 0 : columns.firsts[k] > columns.firsts[k - 1];
    if (!rises || columns.firsts[k] >= columns.count) {
      return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                  "attrsIndexes[{}] is {}; they begin with 0, rise, and stay below numBatches {}",
                  k, columns.firsts[k], columns.count);
    }
  }
  return {};
}

Result<Claim> claim_of(const aclrtMemLocation& location, const Contexts& contexts) {
  switch (location.type) {
    case ACL_MEM_LOCATION_TYPE_HOST:
    case ACL_MEM_LOCATION_TYPE_HOST_NUMA:
    case ACL_MEM_LOCATION_TYPE_UNREGISTERED:
      return Claim{.side = Side::kHost};
    case ACL_MEM_LOCATION_TYPE_MANAGED:
      return Claim{.side = Side::kAny};
    case ACL_MEM_LOCATION_TYPE_DEVICE: {
      const auto device = contexts.device_of(location.id, "an attribute's location.id");
      if (!device) return device.error();
      return Claim{.side = Side::kDevice, .device = *device};
    }
  }
  return fail(Errc::kInvalidValue, Reason::kNone,
              "an attribute has a location of type {}; pass a value of aclrtMemLocationType",
              static_cast<int>(location.type));
}

Result<std::vector<ClaimedPiece>> rows_of(const Columns& columns, const Contexts& contexts) {
  std::vector<ClaimedPiece> rows;
  rows.reserve(columns.count);
  for (size_t k = 0; k < columns.attr_count; ++k) {
    const auto to = claim_of(columns.attrs[k].dstLoc, contexts);
    if (!to) return to.error();
    const auto from = claim_of(columns.attrs[k].srcLoc, contexts);
    if (!from) return from.error();
    const size_t end = k + 1 < columns.attr_count ? columns.firsts[k + 1] : columns.count;
    for (size_t i = columns.firsts[k]; i < end; ++i) {
      rows.push_back(
          {.piece = {.to = columns.dsts[i], .from = columns.srcs[i], .count = columns.sizes[i]},
           .to = *to,
           .from = *from});
    }
  }
  return rows;
}

enum class Timing : bool { kNow, kOnStream };

// `at_fault` becomes the index of the piece to blame, or stays what it is.
Result<void> copy(const Columns& columns, Timing timing, aclrtStream stream, size_t& at_fault) {
  if (auto good = check_arguments(columns, at_fault); !good) return good;
  const auto here = Here::get();
  if (!here) return here.error();
  if (auto good = check_attributes(columns); !good) return good;
  if (timing == Timing::kNow && columns.count > kMostAtOnce) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "numBatches {} exceeds {}; make several calls, or queue it on a stream",
                columns.count, kMostAtOnce);
  }
  auto rows = rows_of(columns, here->runtime->contexts());
  if (!rows) return rows.error();
  if (std::all_of(rows->begin(), rows->end(), [](auto& row) { return row.piece.count == 0; })) {
    return {};
  }
  if (timing == Timing::kNow) return hufu::runtime::copy(*here->runtime, *rows, at_fault);
  return hufu::runtime::copy_on(*here->runtime, {.stream = stream, .context = here->context}, *rows,
                                at_fault);
}

}  // namespace

aclError aclrtMemcpyBatch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes,
                          size_t numBatches, aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes,
                          size_t numAttrs, size_t* failIndex) {
  return answer([&]() -> Result<void> {
    if (failIndex == nullptr) return null_argument("failIndex");
    *failIndex = kNoneToBlame;
    return copy({dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                Timing::kNow, nullptr, *failIndex);
  });
}

aclError aclrtMemcpyBatchV2(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes,
                            size_t numBatches, aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes,
                            size_t numAttrs) {
  return answer([&] {
    size_t at_fault = kNoneToBlame;  // The text names it.
    return copy({dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                Timing::kNow, nullptr, at_fault);
  });
}

aclError aclrtMemcpyBatchAsync(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes,
                               size_t numBatches, aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes,
                               size_t numAttrs, size_t* failIndex, aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (failIndex == nullptr) return null_argument("failIndex");
    *failIndex = kNoneToBlame;
    return copy({dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                Timing::kOnStream, stream, *failIndex);
  });
}

aclError aclrtMemcpyBatchAsyncV2(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes,
                                 size_t numBatches, aclrtMemcpyBatchAttr* attrs,
                                 size_t* attrsIndexes, size_t numAttrs, aclrtStream stream) {
  return answer([&] {
    size_t at_fault = kNoneToBlame;
    return copy({dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                Timing::kOnStream, stream, at_fault);
  });
}
