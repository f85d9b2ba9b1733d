// Contract 1.11: allocators of the user's own, which are kept by stream.

#include "acl/acl_rt_allocator.h"
#include "suite.h"

namespace hufu::conformance {
namespace {

void* allocate(aclrtAllocator /*allocator*/, std::size_t /*size*/) { return nullptr; }
void release(aclrtAllocator /*allocator*/, aclrtAllocatorBlock /*block*/) {}
void* allocate_with_advice(aclrtAllocator /*allocator*/, std::size_t /*size*/,
                           aclrtAllocatorAddr /*address*/) {
  return nullptr;
}
void* address_of(aclrtAllocatorBlock /*block*/) { return nullptr; }

int the_allocator = 0;
int another_allocator = 0;

aclrtAllocatorDesc empty(Bench& bench) {
  const aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
  bench.finally([desc] { (void)aclrtAllocatorDestroyDesc(desc); });
  return desc;
}

struct Without {
  bool object = false;
  bool alloc = false;
  bool free = false;
  bool address = false;
};

aclrtAllocatorDesc filled(Bench& bench, Without without = {}, void* object = &the_allocator) {
  const aclrtAllocatorDesc desc = empty(bench);
  if (!without.object) need(aclrtAllocatorSetObjToDesc(desc, object), "SetObj");
  if (!without.alloc) need(aclrtAllocatorSetAllocFuncToDesc(desc, allocate), "SetAlloc");
  if (!without.free) need(aclrtAllocatorSetFreeFuncToDesc(desc, release), "SetFree");
  if (!without.address) {
    need(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, address_of), "SetGetAddr");
  }
  return desc;
}

aclrtStream registered(Bench& bench, void* object = &the_allocator) {
  const aclrtStream stream = bench.stream();
  need(aclrtAllocatorRegister(stream, filled(bench, {}, object)), "aclrtAllocatorRegister");
  bench.finally([stream] { (void)aclrtAllocatorUnregister(stream); });
  return stream;
}

void fill(Table& table) {
  table.add("1.11", "aclrtAllocatorCreateDesc", "makes one", ACL_SUCCESS, [](Bench& b) {
    b.check(empty(b) != nullptr, "it is not null");
    return ACL_SUCCESS;
  });
  Function(table, "1.11", "aclrtAllocatorDestroyDesc", aclrtAllocatorDestroyDesc,
           [](Bench&) { return std::tuple(aclrtAllocatorCreateDesc()); })
      .good()
      .with<0>("null", nullptr, 100000);
  const auto setter = [&](const char* name, auto call, auto value) {
    Function(table, "1.11", name, call, [value](Bench& b) { return std::tuple(empty(b), value); })
        .good()
        .template with<0>("allocatorDesc null", nullptr, 100000)
        .template with<1>("the other null", nullptr, 100000);
  };
  setter("aclrtAllocatorSetObjToDesc", aclrtAllocatorSetObjToDesc,
         static_cast<void*>(&the_allocator));
  setter("aclrtAllocatorSetAllocFuncToDesc", aclrtAllocatorSetAllocFuncToDesc, allocate);
  setter("aclrtAllocatorSetFreeFuncToDesc", aclrtAllocatorSetFreeFuncToDesc, release);
  setter("aclrtAllocatorSetAllocAdviseFuncToDesc", aclrtAllocatorSetAllocAdviseFuncToDesc,
         allocate_with_advice);
  setter("aclrtAllocatorSetGetAddrFromBlockFuncToDesc", aclrtAllocatorSetGetAddrFromBlockFuncToDesc,
         address_of);
}

void enter(Table& table) {
  const auto without = [](Without what) {
    return [what](Bench& b, auto& all) { std::get<1>(all) = filled(b, what); };
  };
  Function(table, "1.11", "aclrtAllocatorRegister", aclrtAllocatorRegister,
           [](Bench& b) { return std::tuple(b.stream(), filled(b)); })
      .good("without advice, which is optional")
      .with<0>("stream null", nullptr, 100000)
      .with<1>("allocatorDesc null", nullptr, 100000)
      .when("without an object", without({.object = true}), 100000)
      .when("without its alloc function", without({.alloc = true}), 100000)
      .when("without its free function", without({.free = true}), 100000)
      .when("without its address function", without({.address = true}), 100000);
  Function(table, "1.11", "aclrtAllocatorUnregister", aclrtAllocatorUnregister,
           [](Bench& b) { return std::tuple(registered(b)); })
      .good()
      .with<0>("stream null", nullptr, 100000)
      .when(
          "a stream that has none", [](Bench& b, auto& all) { std::get<0>(all) = b.stream(); },
          ACL_SUCCESS)
      .when(
          "again",
          [](Bench&, auto& all) {
            need(aclrtAllocatorUnregister(std::get<0>(all)), "aclrtAllocatorUnregister");
          },
          ACL_SUCCESS);
}

void find(Table& table) {
  Function(table, "1.11", "aclrtAllocatorGetByStream", aclrtAllocatorGetByStream,
           [](Bench& b) {
             return std::tuple(registered(b), b.out<aclrtAllocatorDesc>(), b.out<aclrtAllocator>(),
                               b.out<aclrtAllocatorAllocFunc>(), b.out<aclrtAllocatorFreeFunc>(),
                               b.out<aclrtAllocatorAllocAdviseFunc>(),
                               b.out<aclrtAllocatorGetAddrFromBlockFunc>());
           })
      .good("all outputs",
            [](Bench& b, auto& all) {
              b.check(*std::get<2>(all) == &the_allocator, "the object");
              b.check(*std::get<3>(all) == allocate, "the alloc function");
              b.check(*std::get<4>(all) == release, "the free function");
              b.check(*std::get<5>(all) == nullptr, "no advice function");
              b.check(*std::get<6>(all) == address_of, "the address function");
            })
      .with<0>("stream null", nullptr, 100000)
      .with<1>("allocatorDesc null", nullptr, 100000)
      .when(
          "a stream that has none", [](Bench& b, auto& all) { std::get<0>(all) = b.stream(); },
          100000)
      .when(
          "unregistered before",
          [](Bench&, auto& all) {
            need(aclrtAllocatorUnregister(std::get<0>(all)), "aclrtAllocatorUnregister");
          },
          100000);
  table.add("1.11", "aclrtAllocatorGetByStream", "the other outputs null", ACL_SUCCESS,
            [](Bench& b) {
              return aclrtAllocatorGetByStream(registered(b), b.out<aclrtAllocatorDesc>(), nullptr,
                                               nullptr, nullptr, nullptr, nullptr);
            });
  table.add("1.11", "aclrtAllocatorGetByStream", "the last registration counts", ACL_SUCCESS,
            [](Bench& b) {
              const aclrtStream stream = registered(b);
              need(aclrtAllocatorRegister(stream, filled(b, {}, &another_allocator)), "Register");
              auto* const object = b.out<aclrtAllocator>();
              const aclError code = aclrtAllocatorGetByStream(
                  stream, b.out<aclrtAllocatorDesc>(), object, nullptr, nullptr, nullptr, nullptr);
              b.check(*object == &another_allocator, "the object");
              return code;
            });
  table.add("1.11", "aclrtAllocatorGetByStream", "a description changed after it was registered",
            ACL_SUCCESS, [](Bench& b) {
              const aclrtStream stream = b.stream();
              const aclrtAllocatorDesc desc = filled(b);
              need(aclrtAllocatorRegister(stream, desc), "aclrtAllocatorRegister");
              b.finally([stream] { (void)aclrtAllocatorUnregister(stream); });
              need(aclrtAllocatorSetObjToDesc(desc, &another_allocator), "SetObj");
              auto* const object = b.out<aclrtAllocator>();
              const aclError code = aclrtAllocatorGetByStream(
                  stream, b.out<aclrtAllocatorDesc>(), object, nullptr, nullptr, nullptr, nullptr);
              b.check(*object == &the_allocator, "what was registered is a copy");
              return code;
            });
}

}  // namespace

Table allocator_cases() {
  Table table("allocators");
  fill(table);
  enter(table);
  find(table);
  return table;
}

}  // namespace hufu::conformance
