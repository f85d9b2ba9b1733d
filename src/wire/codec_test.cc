#include "wire/codec.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.h"

namespace hufu::wire {
namespace {

template <class T>
Frame frame_of(const T& body, std::uint16_t flags = 0) {
  return encode(Protocol<T>::kKind, flags, 7, body);
}

bool accepted(const Frame& frame) {
  return std::holds_alternative<Request>(decode_request(frame.view()));
}

Reason refusal(std::span<const std::byte> packet) {
  return std::get<DecodeError>(decode_request(packet)).reason;
}

Mint two_blocks() {
  Mint mint{};
  mint.count = 2;
  mint.specs[0] = {.size = 4096, .page = 4096, .flags = 0};
  mint.specs[1] = {.size = 4 * kMiB, .page = 2 * kMiB, .flags = 0};
  return mint;
}

TEST(DecodeRequest, GivesBackWhatWasEncoded) {
  const Export sent{.block = 5,
                    .offset = 64,
                    .size = 100,
                    .reported_size = 132,
                    .flags = kAnyProcess,
                    .reserved = 0};
  const auto decoded = decode_request(frame_of(sent).view());
  const auto& request = std::get<Request>(decoded);
  EXPECT_EQ(request.id, 7U);
  EXPECT_EQ(request.kind(), Kind::kExport);
  const auto& got = std::get<Export>(request.body);
  EXPECT_EQ(std::memcmp(&got, &sent, sizeof(sent)), 0);
}

TEST(DecodeRequest, EveryTruncationIsMalformed) {
  const Frame frame = frame_of(two_blocks());
  ASSERT_TRUE(accepted(frame));
  for (std::size_t size = 0; size < frame.size; ++size) {
    EXPECT_EQ(refusal(frame.view().first(size)), Reason::kMalformed) << size;
  }
}

TEST(DecodeRequest, TrailingBytesAreMalformed) {
  Frame frame = frame_of(Free{.block = 1});
  ++frame.size;
  EXPECT_EQ(refusal(frame.view()), Reason::kMalformed);
}

TEST(DecodeRequest, AnotherVersionIsNamed) {
  Frame frame = frame_of(Free{.block = 1});
  frame.bytes[0] = std::byte{2};
  const auto decoded = decode_request(frame.view());
  const auto& error = std::get<DecodeError>(decoded);
  EXPECT_EQ(error.reason, Reason::kVersion);
  EXPECT_EQ(error.number[0], 2U);
}

TEST(DecodeRequest, OneWayOnlyWhereNobodyNeedsTheAnswer) {
  EXPECT_TRUE(accepted(frame_of(Free{.block = 1}, kOneWay)));
  EXPECT_TRUE(accepted(frame_of(Close{.share = 1}, kOneWay)));
  EXPECT_TRUE(accepted(frame_of(Bye{}, kOneWay)));
  EXPECT_FALSE(accepted(frame_of(two_blocks(), kOneWay)));
  EXPECT_FALSE(accepted(frame_of(Free{.block = 1}, kReply)));
}

TEST(DecodeRequest, CountsStayInsideTheirArrays) {
  Mint mint = two_blocks();
  mint.count = kMaxMint + 1;
  EXPECT_FALSE(accepted(frame_of(mint)));
  mint.count = 0;
  EXPECT_FALSE(accepted(frame_of(mint)));
  mint.count = 1;  // The second entry is now unused and must be zero.
  EXPECT_FALSE(accepted(frame_of(mint)));
}

TEST(DecodeRequest, BlocksAreWholePages) {
  Mint mint{};
  mint.count = 1;
  mint.specs[0] = {.size = 4096, .page = 2 * kMiB, .flags = 0};
  EXPECT_FALSE(accepted(frame_of(mint)));
  mint.specs[0] = {.size = 8192, .page = 8192, .flags = 0};
  EXPECT_FALSE(accepted(frame_of(mint)));
}

TEST(DecodeRequest, OnlyBlocksOfHugePagesMayBeHugetlb) {
  Mint mint = two_blocks();
  mint.specs[1].flags = kWantHugetlb;
  EXPECT_TRUE(accepted(frame_of(mint)));
  mint.specs[1].flags = 4;
  EXPECT_FALSE(accepted(frame_of(mint)));
  mint.specs[1].flags = 0;
  mint.specs[0].flags = kWantHugetlb;
  EXPECT_FALSE(accepted(frame_of(mint)));
}

TEST(DecodeRequest, AnEventIsNoRequest) {
  const Frame event = encode_event({.what = 1, .importers = 0, .share = 5});
  EXPECT_EQ(refusal(event.view()), Reason::kMalformed);
}

TEST(DecodeRequest, AWatchNamesOneShareOneWay) {
  const KeyText key = key_text("any text, the broker judges it");
  EXPECT_TRUE(accepted(frame_of(Watch{.key = key})));
  EXPECT_TRUE(accepted(frame_of(Watch{.key = {}})));  // Also the empty text.
  EXPECT_TRUE(accepted(frame_of(Watch{.share = 5, .mode = WatchMode::kStop})));
  EXPECT_FALSE(accepted(frame_of(Watch{.key = key, .share = 5})));
  EXPECT_FALSE(accepted(frame_of(Watch{.share = 5, .mode = static_cast<WatchMode>(3)})));
  EXPECT_FALSE(accepted(frame_of(Watch{.share = 5, .reserved = 1})));
}

TEST(DecodeBatch, HoldsAsManyAsItSaysAndOneToSixtyFour) {
  const auto frame_with = [](std::size_t count) {
    return frame_of(Batch<Close>{std::vector<Close>(count, {.share = 1})});
  };
  EXPECT_FALSE(accepted(frame_with(0)));
  EXPECT_TRUE(accepted(frame_with(1)));
  EXPECT_TRUE(accepted(frame_with(kMaxBatch)));
  EXPECT_FALSE(accepted(frame_with(kMaxBatch + 1)));
  Frame lying = frame_with(3);
  lying.batch[sizeof(Header)] = std::byte{2};
  EXPECT_FALSE(accepted(lying));
  lying.batch[sizeof(Header)] = std::byte{4};
  EXPECT_FALSE(accepted(lying));
}

TEST(DecodeBatch, EachItemIsWellFormed) {
  Batch<Import> batch{std::vector<Import>(3)};
  EXPECT_TRUE(accepted(frame_of(batch)));
  batch.items[2].flags = 0x80;
  EXPECT_FALSE(accepted(frame_of(batch)));
  EXPECT_TRUE(accepted(frame_of(Batch<Close>{{{.share = 1}}}, kOneWay)));
  EXPECT_FALSE(accepted(frame_of(Batch<Export>{{{.block = 1}}}, kOneWay)));
}

TEST(DecodeBatch, AnOutcomeIsAReplyOrARefusal) {
  const auto good = [](const Outcome<Export>& outcome) {
    const auto frame = encode(Kind::kExportBatch, kReply, 7, Batch<Outcome<Export>>{{outcome}});
    return decode_reply<Batch<Export>>(frame.view(), 7).has_value();
  };
  EXPECT_TRUE(good({.refusal = {}, .reply = {.share = 1}}));
  EXPECT_TRUE(good({.refusal = {.reason = 41}, .reply = {}}));
  EXPECT_FALSE(good({.refusal = {.reason = 41}, .reply = {.share = 1}}));
  EXPECT_FALSE(good({.refusal = {.reason = 0, .number = {1}}, .reply = {.share = 1}}));
}

TEST(DecodeEvent, TakesEventsAndNothingElse) {
  const Event sent{
      .what = static_cast<std::uint32_t>(EventKind::kExporterGone), .importers = 2, .share = 5};
  const auto got = decode_event(encode_event(sent).view());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->share, 5U);
  EXPECT_FALSE(decode_event(encode_event({.what = 99, .importers = 0, .share = 5}).view()));
  EXPECT_FALSE(decode_event(encode(Kind::kEvent, kReply, 0, sent).view()));
  EXPECT_FALSE(decode_event(frame_of(Free{.block = 1}).view()));
}

TEST(UnnumberedRefusal, IsReadAsOneAndNothingElseIs) {
  const Refusal sent{.reason = 65, .reserved = 0, .sys_errno = 0, .number = {5, 6, 0, 0}};
  const auto got = decode_unnumbered(encode_unnumbered(sent).view());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->reason, 65U);
  EXPECT_EQ(got->number[1], 6U);
  const std::uint16_t refused = kReply | kRefused;
  EXPECT_FALSE(decode_unnumbered(encode(Kind::kStat, refused, 0, sent).view()));
  EXPECT_FALSE(decode_unnumbered(encode(Kind{}, refused, 1, sent).view()));
  EXPECT_FALSE(decode_unnumbered(encode(Kind{}, kReply, 0, sent).view()));
  EXPECT_FALSE(decode_unnumbered(encode(Kind{}, refused, 0, Empty{}).view()));
  EXPECT_FALSE(decode_unnumbered(encode_unnumbered({}).view())) << "reason 0 refuses nothing";
  EXPECT_FALSE(decode_unnumbered({}));
}

TEST(KeyTextForm, KeepsWhatTheUserGave) {
  const std::string key(64, 'A');
  EXPECT_EQ(view_of(key_text(key.c_str())), key);
  EXPECT_EQ(view_of(key_text("short")), "short");
  EXPECT_EQ(view_of(key_text("")), "");
}

TEST(KeyTextForm, LongerThanAKeyIsKnownAsSuch) {
  const std::string key(65, 'A');
  const KeyText text = key_text(key.c_str());
  EXPECT_EQ(text.length, 255);
  EXPECT_TRUE(accepted(frame_of(Withdraw{.key = text})));
}

TEST(DecodeReply, TellsARefusalFromAReply) {
  const Refusal refused{.reason = static_cast<std::uint16_t>(Reason::kNotListed),
                        .reserved = 0,
                        .sys_errno = 0,
                        .number = {1, 2, 3, 0}};
  const Frame frame = encode(Kind::kImport, kReply | kRefused, 9, refused);
  const auto answer = decode_reply<Import>(frame.view(), 9);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(std::get<Refusal>(*answer).number[1], 2U);
  EXPECT_FALSE(decode_reply<Import>(frame.view(), 8).has_value()) << "another request's answer";
  EXPECT_FALSE(decode_reply<Export>(frame.view(), 9).has_value()) << "another kind's answer";
}

TEST(DecodeReply, AnImportThatWrapsIsNoAnswer) {
  ImportReply reply{};
  reply.offset = ~std::uint64_t{0} << 12;
  reply.size = 8192;
  reply.page = 4096;
  reply.slot = 1;
  reply.access = static_cast<std::uint32_t>(Access::kReadOnly);
  const Frame frame = encode(Kind::kImport, kReply, 9, reply);
  EXPECT_FALSE(decode_reply<Import>(frame.view(), 9).has_value());
  reply.offset = 0;
  EXPECT_TRUE(decode_reply<Import>(encode(Kind::kImport, kReply, 9, reply).view(), 9).has_value());
}

TEST(KeyForms, HaveOneTextEach) {
  const auto accepts = [](const KeyText& key) { return accepted(frame_of(Withdraw{.key = key})); };
  KeyText token = text_of_token(0x1122334455667788);
  EXPECT_EQ(token_of(token), 0x1122334455667788U);
  EXPECT_TRUE(view_of(token).empty()) << "no text at all";
  EXPECT_TRUE(accepts(token));
  for (std::size_t i = sizeof(std::uint64_t); i < token.text.size(); ++i) {
    token.text[i] = 'x';
    EXPECT_FALSE(accepts(token)) << i;
    token.text[i] = 0;
  }
  KeyText fabric = text_of_fabric("abc");
  EXPECT_TRUE(accepts(fabric));
  EXPECT_EQ(view_of(fabric).size(), fabric.text.size()) << "whatever it is, the broker judges it";
  EXPECT_FALSE(token_of(fabric));
  for (const int form : {65, 128, 252}) {
    fabric.length = static_cast<std::uint8_t>(form);
    EXPECT_FALSE(accepts(fabric)) << form;
    EXPECT_TRUE(view_of(fabric).empty()) << form;
  }
}

TEST(SparseMint, IsOfChargeUnitsAndNothingElse) {
  const auto accepts = [](const MintSpec& spec) {
    Mint mint{};
    mint.count = 1;
    mint.specs[0] = spec;
    return accepted(frame_of(mint));
  };
  EXPECT_TRUE(accepts({.size = kChargeUnit, .page = 4096, .flags = kSparse}));
  EXPECT_TRUE(accepts({.size = 3 * kChargeUnit, .page = 2 * kMiB, .flags = kSparse}));
  EXPECT_FALSE(accepts({.size = 4096, .page = 4096, .flags = kSparse}));
  EXPECT_FALSE(accepts({.size = kGiB, .page = kGiB, .flags = kSparse}));
  EXPECT_FALSE(accepts({.size = kChargeUnit, .page = 2 * kMiB, .flags = kSparse | kWantHugetlb}));
  EXPECT_FALSE(accepts({.size = kChargeUnit, .page = 2 * kMiB, .flags = 4}));
}

TEST(HandleRequests, AskForWhatThereIs) {
  EXPECT_TRUE(accepted(frame_of(ExportHandle{.block = 1, .flags = kAnyProcess | kReadOnly})));
  EXPECT_FALSE(accepted(frame_of(ExportHandle{.block = 1, .flags = kHandle})));
  EXPECT_FALSE(accepted(frame_of(ExportHandle{.block = 1, .flags = 0, .reserved = 1})));
  EXPECT_FALSE(accepted(frame_of(Export{.block = 1, .size = 1, .flags = kHandle})));
  EXPECT_TRUE(accepted(frame_of(Charge{.block = 1, .bytes = 0})));
  EXPECT_FALSE(accepted(frame_of(Charge{.block = 1, .bytes = kChargeUnit + 1})));
  EXPECT_FALSE(accepted(frame_of(Charge{.block = 1, .bytes = kChargeUnit}, kOneWay)));
}

}  // namespace
}  // namespace hufu::wire
