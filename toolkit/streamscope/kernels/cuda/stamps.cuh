// Stamps of blocks: when each block of a kernel began and ended, and which multiprocessor ran it.

//@ stamps: an object that lives as long as a thread runs the kernel, whichever `return` it leaves by.
// The first thread stamps the start. A block has ended with its last warp, so one thread of each warp raises the end.
struct stamped_block {
    unsigned long long* const stamps;  // start, end, multiprocessor
    __device__ static unsigned long long now()
    {
        unsigned long long time;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) :: "memory");
        return time;
    }
    __device__ explicit stamped_block(unsigned long long* blocks) : stamps(blocks + 3 * (unsigned long long)blockIdx.x)
    {
        if (threadIdx.x != 0) return;
        unsigned multiprocessor;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
        stamps[0] = now();
        stamps[2] = multiprocessor;
    }
    __device__ ~stamped_block()
    {
        if (threadIdx.x % 32 == __ffs(__activemask()) - 1) atomicMax(stamps + 1, now());
    }
};
