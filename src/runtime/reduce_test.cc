#include "runtime/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::runtime {
namespace {

// An element as the oracle sees it: the value of its bits, and the bits whose value is nearest.
template <class T, Element kElement>
struct Plain {
  using Bits = T;
  static constexpr Element kWhich = kElement;
};

// A short floating point type by its widths. Its oracle knows no float arithmetic: it has a table
// of all values and looks for the nearest.
template <Element kElement, int kExponentBits, int kFractionBits>
struct Short {
  using Bits = std::uint16_t;
  static constexpr Element kWhich = kElement;
  static constexpr std::uint16_t kSign = 0x8000;
  static constexpr std::uint16_t kInfinity = ((1 << kExponentBits) - 1) << kFractionBits;

  static long double value(std::uint16_t bits) {
    constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    const int size = bits & 0x7fff;
    const int exponent = size >> kFractionBits;
    const int fraction = size & ((1 << kFractionBits) - 1);
    long double value = 0;
    if (size > kInfinity) return std::numeric_limits<long double>::quiet_NaN();
    if (size == kInfinity) {
      value = std::numeric_limits<long double>::infinity();
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<long double>(fraction), 1 - kBias - kFractionBits);
    } else {
      value = std::ldexp(static_cast<long double>(fraction + (1 << kFractionBits)),
                         exponent - kBias - kFractionBits);
    }
    return (bits & kSign) != 0 ? -value : value;
  }

  // Of a number that is not negative.
  static std::uint16_t nearest(long double wanted) {
    static const std::vector<long double> all = [] {
      std::vector<long double> made;
      for (std::uint16_t bits = 0; bits < kInfinity; ++bits)
        made.push_back(value(bits));
      // What the next one would be if there were more exponents: beyond halfway to it lies
      // infinity.
      made.push_back(2 * made.back() - value(kInfinity - 2));
      return made;
    }();
    const auto above = std::lower_bound(all.begin(), all.end(), wanted);
    if (above == all.end()) return kInfinity;
    const auto high = static_cast<std::uint16_t>(above - all.begin());
    if (high == 0) return 0;
    const auto low = static_cast<std::uint16_t>(high - 1);
    const long double below = wanted - all[low];
    const long double beyond = all[high] - wanted;
    if (below == beyond) return low % 2 == 0 ? low : high;
    return below < beyond ? low : high;
  }

  static std::uint16_t sum(std::uint16_t one, std::uint16_t other) {
    const long double exact = value(one) + value(other);
    if (std::isnan(exact)) return kInfinity + 1;
    const auto size = nearest(std::fabs(exact));
    return std::signbit(exact) ? size | kSign : size;
  }
};

using Half = Short<Element::kFloat16, 5, 10>;
using Bfloat = Short<Element::kBfloat16, 8, 7>;

template <class Type>
bool is_nan(typename Type::Bits bits) {
  if constexpr (requires { Type::value(bits); }) {
    return std::isnan(Type::value(bits));
  } else if constexpr (std::is_floating_point_v<decltype(bits)>) {
    return std::isnan(bits);
  } else {
    return false;
  }
}

template <class Type>
typename Type::Bits expected_sum(typename Type::Bits one, typename Type::Bits other) {
  if constexpr (requires { Type::sum(one, other); }) {
    return Type::sum(one, other);
  } else if constexpr (std::is_floating_point_v<decltype(one)>) {
    return one + other;
  } else {
    __extension__ using Wide = __int128;
    return static_cast<typename Type::Bits>(static_cast<Wide>(one) + static_cast<Wide>(other));
  }
}

template <class Type>
typename Type::Bits expected_extreme(typename Type::Bits one, typename Type::Bits other, bool max) {
  if (is_nan<Type>(one)) return one;
  if (is_nan<Type>(other)) return other;
  const auto less = [](auto a, auto b) {
    if constexpr (requires { Type::value(a); }) {
      const auto x = Type::value(a);
      const auto y = Type::value(b);
      return x < y || (x == y && std::signbit(x) && !std::signbit(y));
    } else if constexpr (std::is_floating_point_v<decltype(a)>) {
      return a < b || (a == b && std::signbit(a) && !std::signbit(b));
    } else {
      return a < b;
    }
  };
  return less(one, other) == max ? other : one;
}

template <class Type>
class Reduce : public testing::Test {
 protected:
  using Bits = typename Type::Bits;

  // Random bits, and all that is special in pairs.
  static std::vector<Bits> special() {
    if constexpr (std::is_integral_v<Bits> && !requires { Type::kSign; }) {
      using Limits = std::numeric_limits<Bits>;
      return {0,
              1,
              static_cast<Bits>(-1),
              Limits::min(),
              Limits::max(),
              static_cast<Bits>(Limits::max() - 1)};
    } else if constexpr (requires { Type::kSign; }) {
      std::vector<Bits> bits;
      for (const int size : {0, 1, 2, (1 << 7) - 1, 1 << 7, (1 << 10) - 1, 1 << 10,
                             Type::kInfinity - 1, +Type::kInfinity, Type::kInfinity + 1, 0x7fff}) {
        bits.push_back(static_cast<Bits>(size));
        bits.push_back(static_cast<Bits>(size | Type::kSign));
      }
      return bits;
    } else {
      using Limits = std::numeric_limits<Bits>;
      return {Bits{0},
              -Bits{0},
              Limits::denorm_min(),
              -Limits::denorm_min(),
              Limits::min(),
              Limits::max(),
              Limits::lowest(),
              Limits::infinity(),
              -Limits::infinity(),
              Limits::quiet_NaN(),
              Bits{1},
              Limits::epsilon() / 2};
    }
  }

  void SetUp() override {
    for (const Bits a : special()) {
      for (const Bits b : special()) {
        to_.push_back(a);
        from_.push_back(b);
      }
    }
    std::mt19937_64 random(7);
    for (int i = 0; i < 20'000; ++i) {
      for (auto* side : {&to_, &from_}) {
        const std::uint64_t bits = random();
        Bits value{};
        std::memcpy(&value, &bits, sizeof value);
        side->push_back(value);
      }
    }
  }

  void expect(Combine how, Bits (*oracle)(Bits, Bits)) {
    // One byte beside what is aligned, and a guard behind.
    std::vector<std::byte> target(to_.size() * sizeof(Bits) + 2, std::byte{0x5a});
    std::memcpy(target.data() + 1, to_.data(), to_.size() * sizeof(Bits));
    combiner_of(how, Type::kWhich)(target.data() + 1, from_.data(), to_.size());
    EXPECT_EQ(target.front(), std::byte{0x5a});
    EXPECT_EQ(target.back(), std::byte{0x5a});
    for (std::size_t i = 0; i < to_.size(); ++i) {
      Bits got{};
      std::memcpy(&got, target.data() + 1 + i * sizeof(Bits), sizeof got);
      const Bits wanted = oracle(to_[i], from_[i]);
      if (is_nan<Type>(wanted)) {
        ASSERT_TRUE(is_nan<Type>(got)) << i;
      } else {
        ASSERT_EQ(std::memcmp(&got, &wanted, sizeof got), 0)
            << i << ": " << +to_[i] << ", " << +from_[i] << " became " << +got << ", not "
            << +wanted;
      }
    }
  }

  std::vector<Bits> to_;
  std::vector<Bits> from_;
};

using Types =
    testing::Types<Plain<float, Element::kFloat>, Half, Bfloat, Plain<double, Element::kDouble>,
                   Plain<std::int8_t, Element::kInt8>, Plain<std::int16_t, Element::kInt16>,
                   Plain<std::int32_t, Element::kInt32>, Plain<std::int64_t, Element::kInt64>,
                   Plain<std::uint8_t, Element::kUint8>, Plain<std::uint16_t, Element::kUint16>,
                   Plain<std::uint32_t, Element::kUint32>, Plain<std::uint64_t, Element::kUint64>>;

struct NameOfType {
  template <class Type>
  static std::string GetName(int /*index*/) {
    return std::to_string(static_cast<int>(Type::kWhich));
  }
};
TYPED_TEST_SUITE(Reduce, Types, NameOfType);

TYPED_TEST(Reduce, SumsAreTheNearest) { this->expect(Combine::kSum, expected_sum<TypeParam>); }

TYPED_TEST(Reduce, TheLargerAndNoNumberFirst) {
  this->expect(Combine::kMax,
               [](auto a, auto b) { return expected_extreme<TypeParam>(a, b, true); });
}

TYPED_TEST(Reduce, TheSmallerAndNoNumberFirst) {
  this->expect(Combine::kMin,
               [](auto a, auto b) { return expected_extreme<TypeParam>(a, b, false); });
}

TYPED_TEST(Reduce, ElementsHaveTheirSizes) {
  EXPECT_EQ(size_of(TypeParam::kWhich), sizeof(typename TypeParam::Bits));
}

}  // namespace
}  // namespace hufu::runtime
