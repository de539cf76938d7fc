// Arrays joined along an axis: each is a matrix whose rows are parts of the result's rows.

//@ concatenate: a thread copies one word of the result, from the array whose part it is.
typedef words<$bytes>::type word_t;
// Words of a row of the result, and how to divide by them; for each array where its part begins, and how far its rows lie apart.
struct parts { long long columns, magic, shift, start[$count], apart[$count]; };

extern "C" __global__ void __launch_bounds__($threads)
$name($parameters, word_t* out, long long size, parts of)
{
    const long long n = (long long)blockIdx.x * $threads + threadIdx.x;
    if (n >= size) return;
    $row
    const long long column = n - row * of.columns;
    const word_t* from = in_0;
    long long start = 0, apart = of.apart[0];
    $choices
    out[n] = from[row * apart + column - start];
}

//@ choice: parts are in order, so the last that has begun is the one.
if (column >= of.start[$part]) { from = in_$part; start = of.start[$part]; apart = of.apart[$part]; }

//@ row_of_one: the arrays follow each other as they are.
const long long row = 0;

//@ row_of_32: a multiplication and a shift; see `divisor` in layout.py.
const unsigned low = (unsigned)n;
const long long row = ((unsigned)(((unsigned long long)low * (unsigned)of.magic) >> 32) + low) >> of.shift;

//@ row_of_64: of more than 2^31 words.
const long long row = n / of.columns;
