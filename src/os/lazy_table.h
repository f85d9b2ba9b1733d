#pragma once

// LazyTable: address space for a table that is as large as it may ever have to be. Its pages come
// with the first write to them, as zeros. Move-only.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace hufu::os {

class LazyTable {
 public:
  static Result<LazyTable> make(std::uint64_t bytes);

  LazyTable() = default;
  ~LazyTable();
  LazyTable(LazyTable&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  LazyTable& operator=(LazyTable&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  LazyTable(const LazyTable&) = delete;
  LazyTable& operator=(const LazyTable&) = delete;

  std::byte* data() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }

  // All zeros again, and the memory behind it given back. May run beside readers.
  void clear();

 private:
  LazyTable(std::byte* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace hufu::os
