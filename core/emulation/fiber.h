// A stack to run on and the switch between two of them: what a CUDA thread is on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define GRADUS_FIBER_UCONTEXT 1
#include <ucontext.h>
#endif

#ifndef GRADUS_FIBER_UCONTEXT
extern "C" void gradus_fiber_switch(void** save, void* load);
#endif

namespace gradus::emulation {

/// A suspended flow of control: the saved registers lie on its own stack.
struct Context {
#ifdef GRADUS_FIBER_UCONTEXT
    ucontext_t state;
#else
    void* stack_pointer = nullptr;
#endif
};

/// Saves the running flow in `from` and goes on with `to`.
inline void switch_context(Context& from, Context& to) {
#ifdef GRADUS_FIBER_UCONTEXT
    swapcontext(&from.state, &to.state);
#else
    gradus_fiber_switch(&from.stack_pointer, to.stack_pointer);
#endif
}

/// Makes a context that starts with entry(), which must not return.
inline void make_context(Context& context, char* stack, std::size_t size, void (*entry)()) {
#ifdef GRADUS_FIBER_UCONTEXT
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack, context.state.uc_stack.ss_size = size, context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
#else
    void** top = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(stack + size) & ~std::uintptr_t(63));
#if defined(__x86_64__)
    *--top = nullptr;                              // a return address that is never used: aligns as after a call
    *--top = reinterpret_cast<void*>(entry);       // popped by ret
    for (int i = 0; i < 6; ++i) *--top = nullptr;  // rbp, rbx, r12 to r15
#else
    top -= 20;  // x19 to x30, d8 to d15
    for (int i = 0; i < 20; ++i) top[i] = nullptr;
    top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
    context.stack_pointer = top;
#endif
}

}  // namespace gradus::emulation
