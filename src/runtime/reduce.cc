#include "runtime/reduce.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace hufu::runtime {
namespace {

// --- Short floating point numbers, by their bits -------------------------------------------------

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

constexpr std::uint32_t kInfinity = 0x7f80'0000;  // Of a float. Above it: not a number.

float widen(Half half) {
  const std::uint32_t sign = (half.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = half.bits >> 10U & 31U;
  const std::uint32_t fraction = half.bits & 1023U;
  if (exponent == 0) {  // So many times 2^-24.
    const float small = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(small) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | kInfinity | fraction << 13U);
  return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
}

Half narrow_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
  const std::uint32_t size = bits & 0x7fff'ffffU;
  const auto with_sign = [&](std::uint32_t half) {
    return Half{static_cast<std::uint16_t>(half | sign)};
  };
  if (size > kInfinity) return with_sign(0x7e00);
  constexpr std::uint32_t kTooLarge = 0x477f'f000;  // 65520: halfway to what would be next.
  if (size >= kTooLarge) return with_sign(0x7c00);
  constexpr std::uint32_t kSmallestNormal = 0x3880'0000;  // 2^-14
  if (size < kSmallestNormal) {
    // The last bit of 0.5 is worth 2^-24, as is that of a small half: the addition rounds.
    const float shifted = std::bit_cast<float>(size) + 0.5F;
    return with_sign(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F));
  }
  const std::uint32_t rounded = size + 0xfff + (size >> 13U & 1U);
  return with_sign((rounded - (112U << 23U)) >> 13U);
}

float widen(Bfloat value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

Bfloat narrow_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fff'ffffU) > kInfinity) {
    return {static_cast<std::uint16_t>(bits >> 16U | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16U & 1U)) >> 16U)};
}

// --- One element ---------------------------------------------------------------------------------

template <class T>
T sum(T one, T other) {
  if constexpr (std::is_same_v<T, Half>) {
    return narrow_to_half(widen(one) + widen(other));
  } else if constexpr (std::is_same_v<T, Bfloat>) {
    return narrow_to_bfloat(widen(one) + widen(other));
  } else if constexpr (std::is_floating_point_v<T>) {
    return one + other;
  } else {
    using Wraps = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Wraps>(static_cast<Wraps>(one) + static_cast<Wraps>(other)));
  }
}

template <class T>
auto number(T value) {
  if constexpr (std::is_class_v<T>) {
    return widen(value);
  } else {
    return value;
  }
}

template <class T>
T extreme(T one, T other, bool max) {
  const auto a = number(one);
  const auto b = number(other);
  if constexpr (std::is_floating_point_v<decltype(a)>) {
    if (std::isnan(a)) return one;
    if (std::isnan(b)) return other;
    if (a == b) return std::signbit(a) != max ? one : other;  // They differ if one is -0.
  }
  return (a > b) == max ? one : other;
}

template <class T, Combine how>
void combine(void* to, const void* from, std::uint64_t elements) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  for (std::uint64_t i = 0; i < elements; ++i) {
    T one{};
    T other{};
    std::memcpy(&one, target + i * sizeof(T), sizeof(T));
    std::memcpy(&other, source + i * sizeof(T), sizeof(T));
    if constexpr (how == Combine::kSum) {
      one = sum(one, other);
    } else {
      one = extreme(one, other, how == Combine::kMax);
    }
    std::memcpy(target + i * sizeof(T), &one, sizeof(T));
  }
}

template <class T>
Combiner combiner_for(Combine how) {
  switch (how) {
    case Combine::kSum:
      return &combine<T, Combine::kSum>;
    case Combine::kMax:
      return &combine<T, Combine::kMax>;
    case Combine::kMin:
      return &combine<T, Combine::kMin>;
  }
  return nullptr;
}

}  // namespace

std::size_t size_of(Element element) {
  switch (element) {
    case Element::kInt8:
    case Element::kUint8:
      return 1;
    case Element::kFloat16:
    case Element::kBfloat16:
    case Element::kInt16:
    case Element::kUint16:
      return 2;
    case Element::kFloat:
    case Element::kInt32:
    case Element::kUint32:
      return 4;
    case Element::kDouble:
    case Element::kInt64:
    case Element::kUint64:
      return 8;
  }
  return 1;
}

Combiner combiner_of(Combine how, Element element) {
  switch (element) {
    case Element::kFloat:
      return combiner_for<float>(how);
    case Element::kFloat16:
      return combiner_for<Half>(how);
    case Element::kBfloat16:
      return combiner_for<Bfloat>(how);
    case Element::kDouble:
      return combiner_for<double>(how);
    case Element::kInt8:
      return combiner_for<std::int8_t>(how);
    case Element::kInt16:
      return combiner_for<std::int16_t>(how);
    case Element::kInt32:
      return combiner_for<std::int32_t>(how);
    case Element::kInt64:
      return combiner_for<std::int64_t>(how);
    case Element::kUint8:
      return combiner_for<std::uint8_t>(how);
    case Element::kUint16:
      return combiner_for<std::uint16_t>(how);
    case Element::kUint32:
      return combiner_for<std::uint32_t>(how);
    case Element::kUint64:
      return combiner_for<std::uint64_t>(how);
  }
  return nullptr;
}

Result<void> reduce_on(Runtime& runtime, const On& on, const Reduction& what) {
  const std::uint64_t elements = what.count / size_of(what.element);
  if (what.count % size_of(what.element) != 0) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "count {} bytes is not a whole number of elements of {} bytes", what.count,
                size_of(what.element));
  }
  return runtime.streams().issue(
      on.stream, on.context, where_for(what.count), [&](Stream& stream) -> Result<Task> {
        const auto ends = check_for(stream, [&] {
          return check_copy(runtime, what.to, what.count, what.from, what.count,
                            CopyKind::kDeviceToDevice);
        });
        if (!ends) return ends.error();
        return Task(ReduceTask{.to = what.to,
                               .from = what.from,
                               .elements = elements,
                               .combine = combiner_of(what.how, what.element)});
      });
}

}  // namespace hufu::runtime
