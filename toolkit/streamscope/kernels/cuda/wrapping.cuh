// Arithmetic of whole numbers that C++ leaves undefined, as NumPy has it. Stands once before all kernels that name it.
//
// A compiler takes it that what is undefined never happens, and uses that across the steps of a fused kernel: of (x + 1) > x it makes true
// without loading x. So sums, differences, products and negatives are computed in unsigned arithmetic, which wraps, in the same instructions.
// A quotient and a rest by zero are 0, the least number by -1 has no quotient, and by the width or more (or by a negative number of places),
// everything is shifted out. C is the type to which C++ brings both operands.

//@ wrapping:
namespace wrapping {
template <typename T> struct kind { static constexpr bool whole = false; };
template <typename U, bool S> struct whole_kind { static constexpr bool whole = true, has_sign = S; typedef U bits; };
template <> struct kind<int> : whole_kind<unsigned, true> {};
template <> struct kind<long> : whole_kind<unsigned long, true> {};
template <> struct kind<long long> : whole_kind<unsigned long long, true> {};
template <> struct kind<unsigned> : whole_kind<unsigned, false> {};
template <> struct kind<unsigned long> : whole_kind<unsigned long, false> {};
template <> struct kind<unsigned long long> : whole_kind<unsigned long long, false> {};
template <typename T> struct number { T value; };
template <typename T> __device__ inline number<T> of(T value) { return {value}; }
template <typename T> __device__ inline T result(number<T> a) { return a.value; }
template <typename C> __device__ inline C negative(C a) { return C(-typename kind<C>::bits(a)); }
template <typename A> __device__ inline auto abs(A a) -> decltype(-a)
{
    const decltype(-a) value = a;
    return value < 0 ? negative(value) : value;
}
template <typename C> __device__ inline bool is_minus_one(C b) { return kind<C>::has_sign && b == C(-1); }
template <typename A> __device__ inline auto operator-(number<A> a) -> number<decltype(-a.value)>
{
    typedef decltype(-a.value) C;
    if constexpr (kind<C>::whole) return {negative(C(a.value))};
    else return {-a.value};
}
template <typename A, typename B> __device__ inline auto operator +(number<A> a, B b) -> number<decltype(a.value + b)>
{
    typedef decltype(a.value + b) C;
    if constexpr (!kind<C>::whole) return {a.value + b};
    else return {C(typename kind<C>::bits(a.value) + typename kind<C>::bits(b))};
}
template <typename A, typename B> __device__ inline auto operator -(number<A> a, B b) -> number<decltype(a.value - b)>
{
    typedef decltype(a.value - b) C;
    if constexpr (!kind<C>::whole) return {a.value - b};
    else return {C(typename kind<C>::bits(a.value) - typename kind<C>::bits(b))};
}
template <typename A, typename B> __device__ inline auto operator *(number<A> a, B b) -> number<decltype(a.value * b)>
{
    typedef decltype(a.value * b) C;
    if constexpr (!kind<C>::whole) return {a.value * b};
    else return {C(typename kind<C>::bits(a.value) * typename kind<C>::bits(b))};
}
template <typename A, typename B> __device__ inline auto operator /(number<A> a, B b) -> number<decltype(a.value / b)>
{
    typedef decltype(a.value / b) C;
    if constexpr (!kind<C>::whole) return {a.value / b};
    else return {is_minus_one(C(b)) ? negative(C(a.value)) : C(b) == 0 ? C(0) : C(C(a.value) / C(b))};
}
template <typename A, typename B> __device__ inline auto operator %(number<A> a, B b) -> number<decltype(a.value % b)>
{
    typedef decltype(a.value % b) C;
    if constexpr (!kind<C>::whole) return {a.value % b};
    else return {C(b) == 0 || is_minus_one(C(b)) ? C(0) : C(C(a.value) % C(b))};
}
template <typename A, typename B> __device__ inline auto operator <<(number<A> a, B b) -> number<decltype(a.value << b)>
{
    typedef decltype(a.value << b) C;
    if constexpr (!kind<C>::whole) return {a.value << b};
    else return {(unsigned long long)b < 8 * sizeof(C) ? C(typename kind<C>::bits(a.value) << b) : C(0)};
}
template <typename A, typename B> __device__ inline auto operator >>(number<A> a, B b) -> number<decltype(a.value >> b)>
{
    typedef decltype(a.value >> b) C;
    if constexpr (!kind<C>::whole) return {a.value >> b};
    else if constexpr (!kind<C>::has_sign) return {(unsigned long long)b < 8 * sizeof(C) ? C(a.value >> b) : C(0)};
    else return {C(a.value >> ((unsigned long long)b < 8 * sizeof(C) ? int(b) : int(8 * sizeof(C) - 1)))};
}
}
