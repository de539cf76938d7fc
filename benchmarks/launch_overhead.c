/* The floor: launches and event records from a C loop. */
#include <cuda.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

double launch_ns(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void **arguments, int count)
{
    double start = now_ns();
    for (int i = 0; i < count; ++i)
        if (cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0) != CUDA_SUCCESS) return -1;
    return (now_ns() - start) / count;
}

/* The same with `each` timing events around each launch: 1 behind it, 2 also ahead of it. */
double recorded_ns(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void **arguments, CUevent *events, int each, int count)
{
    double start = now_ns();
    for (int i = 0; i < count; ++i) {
        if (each > 1 && cuEventRecord(*events++, stream) != CUDA_SUCCESS) return -1;
        if (cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0) != CUDA_SUCCESS) return -1;
        if (each > 0 && cuEventRecord(*events++, stream) != CUDA_SUCCESS) return -1;
    }
    return (now_ns() - start) / count;
}
