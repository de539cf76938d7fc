// Where an element lies in arrays of several axes. Below 2^31 elements, division is a multiplication and a shift.

//@ place:
typedef $index index_t;
// Outermost axis first; strides in elements.
struct layout { long long extent[$rank], magic[$rank], shift[$rank], $strides; };
struct offsets { long long $offsets; };

__device__ inline offsets place(long long n, const layout& at)
{
    offsets to = {};
    $body
    return to;
}

//@ along_one: also right where n is below 0, before the first element of a masked kernel's first vector.
to.$array = n * at.$array[0];

//@ along_several:
index_t rest = (index_t)n;
#pragma unroll
for (int axis = $last_axis; axis > 0; --axis) {
    $divided
    $inner
    rest = quotient;
}
$outer

//@ inner:
to.$array += (long long)(rest - quotient * (index_t)at.extent[axis]) * at.$array[axis];

//@ outer:
to.$array += (long long)rest * at.$array[0];

//@ divided_32:
const index_t quotient = ((unsigned)(((unsigned long long)rest * (unsigned)at.magic[axis]) >> 32) + rest) >> at.shift[axis];

//@ divided_64:
const index_t quotient = rest / at.extent[axis];
