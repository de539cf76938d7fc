// Kernels around the nodes of captured code, and beside them, while an order is proven.

//@ now: the time of the device, in ns.
__device__ inline unsigned long long now()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) :: "memory");
    return time;
}

//@ node_begins: marks that a node may begin, and holds it back for a while, or until the host writes to the first word.
extern "C" __global__ void node_begins(volatile unsigned int* words, int begun, int delay_ns)
{
    words[begun] = 1;
    const unsigned long long until = now() + words[delay_ns];
    while (now() < until && words[0] == 0) {}
}

//@ node_ended: marks that a node has ended.
extern "C" __global__ void node_ended(volatile unsigned int* words, int ended)
{
    words[ended] = 1;
}

//@ neighbour: keeps multiprocessors busy for a while.
extern "C" __global__ void neighbour(unsigned int duration_ns)
{
    const unsigned long long until = now() + duration_ns;
    while (now() < until) {}
}
