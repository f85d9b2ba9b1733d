#pragma once

// Memory that the program made, as the kernel sees it: is it there, and may it be locked.

#include <cstdint>

#include "base/result.h"

namespace hufu::os {

// Can every byte of it be read? It is looked at now; what the program does later is its own.
// Nothing is committed.
Result<void> require_readable(const void* pointer, std::uint64_t size);
// The same without reading: for the registers of a device, where reading is doing something.
Result<void> require_mapped(const void* pointer, std::uint64_t size);

// mlock of whole pages, given by their first byte and number of bytes. A refusal names the limit,
// what is locked already, and the command.
Result<void> lock_pages(std::uintptr_t first, std::uint64_t bytes);
// Memory that is gone meanwhile is not locked any more either: there is nothing to report.
void unlock_pages(std::uintptr_t first, std::uint64_t bytes);

}  // namespace hufu::os
