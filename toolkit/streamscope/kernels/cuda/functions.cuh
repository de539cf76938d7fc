// Device functions that CUDA does not have, or has with another meaning. A kernel has those that its expression names.
//
// modulo, floor_quotient and log_add follow NumPy's own (npy_math_internal.h.src: npy_remainder, npy_floor_divide, npy_logaddexp), whose
// special cases they share. Division of whole numbers by zero gives 0, as in NumPy. digamma and trigamma are reflected into x > 0, raised by
// their recurrences to x >= 10, and summed there by their asymptotic series: Abramowitz and Stegun, "Handbook of Mathematical Functions",
// 6.3.5-7 and 6.3.18, 6.4.6-7 and 6.4.12.
//
// Those that begin with half_ are for half-precision numbers that are computed in float: CUDA's own have 13 bits more than half keeps, and at
// the bandwidth of an H200's memory there is time for 28 instructions an element. Their polynomials are minimax (relative error, by Lawson's
// method), so that results are off by less than 0.52 units in the last place of half.
//
// Each function stands behind those that it calls.

//@ sign:
template <typename T> __device__ inline T sign(T a) { return a != a ? a : T((a > T(0)) - (a < T(0))); }

//@ maximum:
template <typename T> __device__ inline T maximum(T a, T b) { return a > b || a != a ? a : b; }  // a NaN is passed on

//@ minimum:
template <typename T> __device__ inline T minimum(T a, T b) { return a < b || a != a ? a : b; }  // a NaN is passed on

//@ modulo:
template <typename T> __device__ inline T modulo(T a, T b)
{
    const T rest = fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign(T(0), b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

//@ floor_quotient:
template <typename T> __device__ inline T floor_quotient(T a, T b)
{
    if (b == 0) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(T(0), a / b);
    const T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
}

//@ whole_modulo:
template <typename T> __device__ inline T whole_modulo(T a, T b)
{
    const T rest = wrapping::result(wrapping::of(a) % b);
    return rest != 0 && (b < 0) != (rest < 0) ? T(rest + b) : rest;
}

//@ whole_quotient:
template <typename T> __device__ inline T whole_quotient(T a, T b)
{
    if (b == 0) return 0;
    if (b == T(-1) && b < 0) return T(0ull - (unsigned long long)a);
    return T(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

//@ whole_power:
// By squaring, modulo the width. A negative exponent gives the power's whole part: 0 but for bases 1 and -1, and 0 for base 0.
template <typename T> __device__ inline T whole_power(T a, T b)
{
    if (b < 0) return a == 1 ? T(1) : a == T(-1) ? T(b % 2 ? -1 : 1) : T(0);
    unsigned long long base = a, power = 1;
    for (; b > 0; b /= 2, base *= base)
        if (b % 2) power *= base;
    return T(power);
}

//@ magnitude:
template <typename T> __device__ inline unsigned long long magnitude(T a) { return a < 0 ? 0 - (unsigned long long)a : a; }

//@ compared:
// -1, 0 or 1 of two whole numbers, one of which has no sign: C++ would take the sign of the other, too.
template <typename A, typename B> __device__ inline int compared(A a, B b)
{
    if (a < 0 || b < 0) return a < 0 ? -1 : 1;
    const unsigned long long x = a, y = b;
    return x < y ? -1 : x > y;
}

//@ gcd:
template <typename T> __device__ inline T gcd(T a, T b)
{
    unsigned long long x = magnitude(a), y = magnitude(b);
    while (y != 0) {
        const unsigned long long rest = x % y;
        x = y;
        y = rest;
    }
    return T(x);
}

//@ lcm:
template <typename T> __device__ inline T lcm(T a, T b)
{
    const unsigned long long divisor = magnitude(gcd(a, b));
    return divisor == 0 ? T(0) : T(magnitude(a) / divisor * magnitude(b));
}

//@ scale_by_power:
// Any exponent beyond the range of an int over- or underflows as the nearest int does.
// Without the conversion, -2147483647 would lose its sign beside an exponent that has none.
template <typename T, typename I> __device__ inline T scale_by_power(T a, I b)
{
    return ldexp(a, b > 2147483647LL ? 2147483647 : (long long)b < -2147483647LL ? -2147483647 : (int)b);
}

//@ log_add:
template <typename T> __device__ inline T log_add(T a, T b)
{
    if (a == b) return a + T(0.693147180559945309417);
    const T difference = a - b;
    return difference > 0 ? a + log1p(exp(-difference)) : difference <= 0 ? b + log1p(exp(difference)) : difference;
}

//@ softplus:
template <typename T> __device__ inline T softplus(T a) { return a > 0 ? a + log1p(exp(-a)) : log1p(exp(a)); }

//@ sigmoid:
template <typename T> __device__ inline T sigmoid(T a) { return 1 / (1 + exp(-a)); }

//@ half_sigmoid:
__device__ inline float half_sigmoid(float x) { return __fdividef(1.0f, 1 + exp2(x * -1.44269504f)); }

//@ half_erf:
// Beyond 2.75 it is nearer to 1 than half can tell.
__device__ inline float half_erf(float x)
{
    const float t = x * x;
    float p = 7.530270548e-8f;
    p = fma(p, t, -3.070947460e-6f);
    p = fma(p, t, 5.614698678e-5f);
    p = fma(p, t, -6.180785753e-4f);
    p = fma(p, t, 4.667017922e-3f);
    p = fma(p, t, -2.608762906e-2f);
    p = fma(p, t, 1.122682960e-1f);
    p = fma(p, t, -3.759588807e-1f);
    p = fma(p, t, 1.128370595f);
    return fabs(x) > 2.75f ? copysign(1.0f, x) : x * p;
}

//@ half_log1p:
__device__ inline float half_log1p(float x)
{
    const float near = x * fma(fma(fma(-0.250783546f, x, 0.334116628f), x, -0.499999298f), x, 0.999999617f);
    return fabs(x) < 0.0625f ? near : __log2f(1 + x) * 0.693147181f;
}

//@ half_reduced_sine:
// The sine of x - turns π, with the sign of its bit 31 turned where that of ``odd`` is set; π in three parts (Cody and Waite).
__device__ inline float half_reduced_sine(float x, float turns, int odd)
{
    float r = fma(turns, -1.509957991e-7f, fma(turns, -9.67502594e-4f, fma(turns, -3.140625f, x)));
    r = __int_as_float(__float_as_int(r) ^ (odd & 0x80000000));
    const float t = r * r;
    return r * fma(fma(fma(-1.848544203e-4f, t, 8.311812867e-3f), t, -0.1666554723f), t, 0.999999053f);
}

//@ half_sin:
__device__ inline float half_sin(float x)
{
    const float shifted = fma(x, 0.318309886f, 12582912.0f);  // 1.5 * 2^23, so that the last bit is that of the turns
    return half_reduced_sine(x, shifted - 12582912.0f, (unsigned)__float_as_int(shifted) << 31);
}

//@ half_cos:
__device__ inline float half_cos(float x)
{
    const float shifted = fma(x, 0.318309886f, -0.5f) + 12582912.0f;
    return half_reduced_sine(x, shifted - 12582912.0f + 0.5f, ~((unsigned)__float_as_int(shifted) << 31));
}

//@ digamma:
template <typename T> __device__ inline T digamma(T x)
{
    T value = 0;
    if (x <= 0) {
        if (x == 0) return T(-1) / x;
        if (x == floor(x)) return x - x == 0 ? (x - x) / (x - x) : x - x;  // a pole
        value = T(-3.14159265358979323846) / tan(T(3.14159265358979323846) * (x - rint(x)));
        x = 1 - x;
    }
    for (; x < 10; x += 1) value -= 1 / x;
    const T z = 1 / (x * x);
    const T series = z * (T(1.0 / 12) - z * (T(1.0 / 120) - z * (T(1.0 / 252) - z * (T(1.0 / 240) - z * (T(1.0 / 132)
        - z * (T(691.0 / 32760) - z * T(1.0 / 12)))))));
    return value + (log(x) - T(0.5) / x - series);
}

//@ trigamma:
template <typename T> __device__ inline T trigamma(T x)
{
    T value = 0, direction = 1;
    if (x <= 0) {
        const T sine = sin(T(3.14159265358979323846) * (x - rint(x)));
        value = T(9.86960440108935861883) / (sine * sine);
        direction = -1;
        x = 1 - x;
    }
    for (; x < 10; x += 1) value += direction / (x * x);
    const T z = 1 / (x * x);
    const T series = z * (T(1.0 / 6) - z * (T(1.0 / 30) - z * (T(1.0 / 42) - z * (T(1.0 / 30) - z * (T(5.0 / 66)
        - z * (T(691.0 / 2730) - z * T(7.0 / 6)))))));
    return value + direction * (1 / x + z / 2 + series / x);
}
