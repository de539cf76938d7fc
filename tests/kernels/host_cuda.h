// Runs CUDA kernels on the host, one thread at a time, so that their numbers can be checked without a GPU.
//
// Each CUDA thread is a coroutine. It runs until it waits for its warp (a shuffle) or for its block (__syncthreads), and one warp
// runs as far as it can before the next begins. A missing barrier is thus no race that is lost now and then: the first warp always
// runs ahead of the others, and the numbers always come out wrong.
#pragma once

#include <math.h>
#include <string.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <string>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

// What the undefined-behaviour sanitizer calls: the compiler may use that such a thing never happens, so no kernel may do it. The first
// place is kept; whoever asks for it forgets it.
inline std::string undefined;
struct Place { const char* file; unsigned line, column; };
inline void note_undefined(const char* what, const Place& at)
{
    if (undefined.empty()) undefined = what + (" in line " + std::to_string(at.line));
}
extern "C" {
void __ubsan_handle_add_overflow(Place* at, void*, void*) { note_undefined("a sum that overflows", *at); }
void __ubsan_handle_sub_overflow(Place* at, void*, void*) { note_undefined("a difference that overflows", *at); }
void __ubsan_handle_mul_overflow(Place* at, void*, void*) { note_undefined("a product that overflows", *at); }
void __ubsan_handle_negate_overflow(Place* at, void*) { note_undefined("a negative that overflows", *at); }
void __ubsan_handle_divrem_overflow(Place* at, void*, void*) { note_undefined("a division that overflows, or by zero,", *at); }
void __ubsan_handle_shift_out_of_bounds(Place* at, void*, void*) { note_undefined("a shift beyond the width, or of a sign,", *at); }
const char* undefined_behaviour()
{
    static std::string told;
    told.swap(undefined);
    undefined.clear();
    return told.c_str();
}
}

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
template <typename T> inline void __stwb(T* to, T value) { memcpy(to, &value, sizeof(T)); }

namespace host_cuda {

constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 64 << 10;

// A stack to go on with later. On x86-64 switching takes a dozen instructions: the C library's contexts, which serve elsewhere, ask the
// kernel for the signal mask at every switch, and that takes longer than the tests' kernels themselves.
#ifdef __x86_64__
struct Context { void* stack_pointer; };

asm(R"(
.text
.p2align 4
host_cuda_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
extern "C" void host_cuda_switch(Context* from, const Context* to);

inline void switch_context(Context& from, const Context& to) { host_cuda_switch(&from, &to); }

inline void begin(Context& context, char* stack, size_t bytes, void (*function)())
{
    void** top = (void**)((size_t)(stack + bytes) & ~(size_t)15) - 2;  // aligned as a call leaves it
    *top = (void*)function;
    context.stack_pointer = top - 6;  // the registers that are taken back hold anything
}
#else
typedef ucontext_t Context;

inline void switch_context(Context& from, const Context& to) { swapcontext(&from, &to); }

inline void begin(Context& context, char* stack, size_t bytes, void (*function)())
{
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, function, 0);
}
#endif

enum class Waits { nothing, warp, block, ended };

struct Index { unsigned x, y, z; };

struct Thread {
    Context context;
    std::vector<char> stack = std::vector<char>(STACK_BYTES);
    Waits waits = Waits::nothing;
    alignas(8) char value[8] = {};  // what it shows to its warp
};

inline Context scheduler;
inline std::vector<Thread> threads;
inline unsigned running;

// Calls a kernel of some type with arguments behind pointers. No std::function, which takes the compiler as long as half a kernel.
typedef void (*Kernel)();
typedef void (*Caller)(Kernel, void** arguments);

inline Caller caller;
inline Kernel kernel;
inline void** arguments;

inline void wait_for(Waits what)
{
    threads[running].waits = what;
    switch_context(threads[running].context, scheduler);
}

inline void run_thread()
{
    caller(kernel, arguments);
    wait_for(Waits::ended);
}

}  // namespace host_cuda

inline host_cuda::Index threadIdx, blockIdx, blockDim, gridDim;

namespace host_cuda {

// Runs every thread of a warp up to its next wait; false if all wait for the block or have ended.
inline bool advance(unsigned first, unsigned end)
{
    bool released = false;
    for (unsigned t = first; t < end; ++t)
        if (threads[t].waits == Waits::warp) { threads[t].waits = Waits::nothing; released = true; }
    bool ran = released;
    for (running = first; running < end; ++running)
        if (threads[running].waits == Waits::nothing) {
            threadIdx = {running, 0, 0};
            switch_context(scheduler, threads[running].context);
            ran = true;
        }
    return ran;
}

inline void run_block(unsigned count)
{
    threads.resize(count);
    for (Thread& thread : threads) {
        thread.waits = Waits::nothing;
        begin(thread.context, thread.stack.data(), thread.stack.size(), run_thread);
    }
    for (bool waiting = true; waiting;) {
        for (unsigned first = 0; first < count; first += WARP)
            while (advance(first, first + WARP < count ? first + WARP : count)) {}
        waiting = false;
        for (Thread& thread : threads)
            if (thread.waits == Waits::block) { thread.waits = Waits::nothing; waiting = true; }
    }
}

inline void launch(unsigned blocks, unsigned count)
{
    gridDim = {blocks, 1, 1};
    blockDim = {count, 1, 1};
    for (unsigned block = 0; block < blocks; ++block) {
        blockIdx = {block, 0, 0};
        run_block(count);
    }
}

template <typename... P, size_t... I>
void call(Kernel kernel, void** arguments, std::index_sequence<I...>)
{
    ((void (*)(P...))kernel)(*static_cast<P*>(arguments[I])...);
}

// Takes arguments as cuLaunchKernel does: pointers to the values.
template <typename... P>
void launch(void (*launched)(P...), unsigned blocks, unsigned count, void** values)
{
    caller = [](Kernel kernel, void** arguments) { call<P...>(kernel, arguments, std::index_sequence_for<P...>()); };
    kernel = (Kernel)launched;
    arguments = values;
    launch(blocks, count);
}

}  // namespace host_cuda

inline float __int_as_float(int bits) { float value; memcpy(&value, &bits, 4); return value; }
inline double __longlong_as_double(long long bits) { double value; memcpy(&value, &bits, 8); return value; }

// Four of the bytes of a (0 to 3) and b (4 to 7), by the digits of a selector.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int k = 0; k < 4; ++k) result |= unsigned(bytes >> 8 * (selector >> 4 * k & 7) & 0xff) << 8 * k;
    return result;
}

// The sum of the products of four bytes each.
inline int __dp4a(int a, int b, int sum)
{
    for (int k = 0; k < 32; k += 8) sum += (signed char)(a >> k) * (signed char)(b >> k);
    return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum)
{
    for (int k = 0; k < 32; k += 8) sum += (a >> k & 0xff) * (b >> k & 0xff);
    return sum;
}

inline int __float_as_int(float value) { int bits; memcpy(&bits, &value, 4); return bits; }

// What CUDA has and the host's library has not. What is quick there is exact here: GPU tests see the difference.
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrt(float x) { return 1 / sqrt((double)x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rcbrt(float x) { return 1 / cbrt((double)x); }
inline double rcbrt(double x) { return 1 / cbrt(x); }

// Newton's method from Winitzki's approximation (2008).
inline double erfinv(double y)
{
    if (!(y > -1 && y < 1)) return y == 1 || y == -1 ? y * HUGE_VAL : NAN;
    const long double a = 0.147L, logarithm = log1pl(-(long double)y * y), term = 2 / (M_PIl * a) + logarithm / 2;
    long double x = copysignl(sqrtl(sqrtl(term * term - logarithm / a) - term), y);
    for (int step = 0; step < 6; ++step) x -= (erfl(x) - y) / (M_2_SQRTPIl * expl(-x * x));
    return x;
}
inline float erfinv(float y) { return erfinv((double)y); }

inline void __syncthreads() { host_cuda::wait_for(host_cuda::Waits::block); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int offset)
{
    using namespace host_cuda;
    static_assert(sizeof(T) <= sizeof(Thread::value));
    memcpy(threads[running].value, &value, sizeof(T));
    wait_for(Waits::warp);
    T other;
    memcpy(&other, threads[running ^ offset].value, sizeof(T));
    wait_for(Waits::warp);  // until all have read
    return other;
}

// A bit for each thread of the warp that has something to say.
inline unsigned __ballot_sync(unsigned, bool said)
{
    using namespace host_cuda;
    threads[running].value[0] = said;
    wait_for(Waits::warp);
    unsigned bits = 0;
    for (unsigned first = running / WARP * WARP, t = first; t < first + WARP && t < threads.size(); ++t)
        bits |= unsigned(threads[t].value[0] != 0) << (t - first);
    wait_for(Waits::warp);  // until all have read
    return bits;
}
inline int __ffs(unsigned bits) { return __builtin_ffs(bits); }
