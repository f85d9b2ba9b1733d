#include "os/huge_pages.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "os/file.h"

namespace hufu::os {
namespace {

std::uint64_t number_in(const std::string& path) {
  const std::string text = read_small_file(path);
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

HugePages huge_pages(PageSize page) {
  if (page == PageSize::k4KiB) return {};
  const std::string pool =
      fmt::format("/sys/kernel/mm/hugepages/hugepages-{}kB/", bytes_of(page) / kKiB);
  const std::uint64_t free = number_in(pool + "free_hugepages");
  const std::uint64_t promised = number_in(pool + "resv_hugepages");
  return {.reserved = number_in(pool + "nr_hugepages"),
          .available = free - std::min(free, promised)};
}

Error fail_huge_pages(std::uint64_t bytes, PageSize page) {
  const HugePages pages = huge_pages(page);
  const std::uint64_t needed = (bytes + bytes_of(page) - 1) / bytes_of(page);
  return fail(
      Errc::kOutOfMemory, Reason::kMemory,
      "{} bytes need {} huge pages of {} KiB and HUFU_HUGEPAGES=require; the machine has "
      "{} of {} available, or a hugetlb cgroup allows fewer: reserve some with `sudo sysctl "
      "vm.nr_hugepages={}`, or set HUFU_HUGEPAGES=auto",
      bytes, needed, bytes_of(page) / kKiB, pages.available, pages.reserved,
      pages.reserved + needed - std::min(needed, pages.available));
}

}  // namespace hufu::os
