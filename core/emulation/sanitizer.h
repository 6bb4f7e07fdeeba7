// What the sanitizers must be told about fibers and shared memory; nothing in a plain build.
#pragma once

#include <cstddef>

#if defined(GRADUS_EMULATION_TSAN)
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
void __tsan_set_fiber_name(void*, const char*);
}
#define GRADUS_TSAN(...) __VA_ARGS__
#else
#define GRADUS_TSAN(...)
#endif

#if defined(__SANITIZE_ADDRESS__)
#define GRADUS_ASAN(...) __VA_ARGS__
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRADUS_ASAN(...) __VA_ARGS__
#endif
#endif
#ifndef GRADUS_ASAN
#define GRADUS_ASAN(...)
#else
extern "C" {
void __asan_poison_memory_region(void const volatile*, std::size_t);
void __asan_unpoison_memory_region(void const volatile*, std::size_t);
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
}
#endif
