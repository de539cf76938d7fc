// What goes from one operation of a fused kernel to the next.

//@ rounded:
// As if it had been in memory: rounded to half.
__device__ inline float rounded(float value)
{
    asm("{ .reg .b16 half; cvt.rn.f16.f32 half, %0; cvt.f32.f16 %0, half; }" : "+f"(value));
    return value;
}

//@ apart:
// The same number, with which no product is contracted: value + -0.0.
__device__ inline float apart(float value) { asm volatile("add.rn.f32 %0, %0, 0f80000000;" : "+f"(value)); return value; }
__device__ inline double apart(double value) { asm volatile("add.rn.f64 %0, %0, 0d8000000000000000;" : "+d"(value)); return value; }
