// Stamps of blocks: when each block of a kernel began and ended, and which multiprocessor ran it.

//@ stamps: an object that lives as long as a thread runs the kernel, whichever `return` it leaves by.
//@ The first thread stamps for its block. One thread of each warp, joined by atomics, cost a kernel of 1,056 blocks 9 % of its time, this
//@ one 3 %; the first thread is never behind others that have nothing to do.
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
        if (threadIdx.x == 0) stamps[1] = now();
    }
};
