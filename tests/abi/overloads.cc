// acl_rt_api.h as C++11: every overload is instantiated, and the ones whose target could be
// mistaken are compared with the C function that they stand for.

#include <cstdio>

#include <acl/acl_rt_api.h>
#include <acl/acl_rt_memory_soma.h>

namespace {

int failures = 0;

void expect_same(const char* what, aclError overload, aclError function) {
  if (overload == function) return;
  std::printf("%s: %d, but the C function answers %d\n", what, overload, function);
  ++failures;
}

// Never run: an unresolved or ambiguous overload is a compile error.
void instantiate_all() {
  float* p = nullptr;
  const float* c = nullptr;
  void* v = nullptr;
  size_t n = 0;
  uint64_t actual = 0;
  aclrtStream stream = nullptr;
  aclrtEvent event = nullptr;
  aclrtPtrAttributes attributes;
  aclrtMallocConfig cfg = {nullptr, 0};
  aclrtMemcpyBatchAttr attr = {};
  aclrtMemManagedLocation place = {};
  float* dsts[1] = {nullptr};
  const float* srcs[1] = {nullptr};
  float variable = 0;

  aclrtSynchronizeDevice(1);
  aclrtSynchronizeStream(stream, 1);
  aclrtSynchronizeEvent(event, 1);
  aclrtStreamWaitEvent(stream, event, 1);
  aclrtCreateStream(&stream, 0, ACL_STREAM_FAST_SYNC);
  aclrtCreateEvent(&event, ACL_EVENT_IPC);
  aclrtSetOpExecuteTimeOut(1, &actual);
  aclrtMalloc(&p, 1);
  aclrtMalloc(&p, 1, &cfg);
  aclrtMalloc(&p, 1, ACL_MEM_MALLOC_HUGE_ONLY);
  aclrtMalloc(&p, 1, ACL_MEM_MALLOC_HUGE_ONLY, &cfg);
  aclrtMalloc(&v, 1, ACL_MEM_MALLOC_HUGE_ONLY);
  aclrtMallocHost(&p, 1);
  aclrtMallocHost(&v, 1);
  aclrtMemAllocManaged(&p, 1);
  aclrtPointerGetAttributes(p, &attributes);
  aclrtHostRegister(p, 1, ACL_HOST_REGISTER_MAPPED, &p);
  aclrtHostRegister(p, 1, static_cast<uint32_t>(ACL_HOST_REG_MAPPED));
  aclrtHostGetDevicePointer(p, &p);
  aclrtHostUnregister(p);
  aclrtMemcpy(p, 1, c, 1, ACL_MEMCPY_DEFAULT);
  aclrtMemcpy(v, 1, c, 1, ACL_MEMCPY_DEFAULT);
  aclrtMemcpyAsync(p, 1, c, 1, ACL_MEMCPY_DEFAULT, stream);
  aclrtMemcpy2d(p, 1, c, 1, 1, 1, ACL_MEMCPY_DEFAULT);
  aclrtMemcpy2dAsync(p, 1, c, 1, 1, 1, ACL_MEMCPY_DEFAULT, stream);
  aclrtMemcpyBatch(dsts, &n, srcs, &n, 1, &attr, &n, 1);
  aclrtMemcpyBatch(dsts, &n, srcs, &n, 1, &attr, &n, 1, &n);
  aclrtMemcpyBatch(dsts, &n, srcs, &n, 1, attr);
  aclrtMemcpyBatch(dsts, &n, srcs, &n, 1, attr, &n);
  aclrtMemcpyBatchAsync(dsts, &n, srcs, &n, 1, &attr, &n, 1, stream);
  aclrtMemcpyBatchAsync(dsts, &n, srcs, &n, 1, attr, stream);
  aclrtMemcpyBatchAsync(dsts, &n, srcs, &n, 1, &attr, &n, 1, &n, stream);
  aclrtMemcpyBatchAsync(dsts, &n, srcs, &n, 1, attr, &n, stream);
  aclrtMemManagedPrefetchAsync(c, 1, place, 0, stream);
  aclrtMemManagedPrefetchBatchAsync(srcs, &n, 1, &place, &n, 1, 0, stream);
  aclrtMemManagedPrefetchBatchAsync(srcs, &n, 1, place, 0, stream);
  aclrtGetSymbolAddress(variable, &v);
  aclrtGetSymbolSize(variable, &n);
  aclrtMemcpyFromSymbol(v, 1, variable, 1, 0, ACL_MEMCPY_DEFAULT);
  aclrtMemcpyFromSymbolAsync(v, 1, variable, 1, 0, ACL_MEMCPY_DEFAULT, stream);
  aclrtMemcpyToSymbol(variable, v, 1, 0, ACL_MEMCPY_DEFAULT);
  aclrtMemcpyToSymbolAsync(variable, v, 1, 0, ACL_MEMCPY_DEFAULT, stream);
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) instantiate_all();

  const aclError set = aclrtSetDevice(0);

  // Distinguishable on any build: sizes of 0 and null outputs are refused by the function itself.
  float* p = nullptr;
  void* v = nullptr;
  expect_same("aclrtMalloc(&p, 0)", aclrtMalloc(&p, 0),
              aclrtMallocWithCfg(&v, 0, ACL_MEM_MALLOC_HUGE_FIRST, nullptr));
  expect_same("aclrtSynchronizeDevice(0)", aclrtSynchronizeDevice(0),
              aclrtSynchronizeDeviceWithTimeout(0));

  float* q = nullptr;
  void* w = nullptr;
  const aclError two = aclrtMalloc(&q, 4096);
  expect_same("aclrtMalloc(&p, 4096)", two,
              aclrtMallocWithCfg(&w, 4096, ACL_MEM_MALLOC_HUGE_FIRST, nullptr));
  if (two == ACL_SUCCESS) {
    aclrtFree(q);
    aclrtFree(w);
  }
  if (set == ACL_SUCCESS) aclrtResetDevice(0);
  return failures != 0;
}
