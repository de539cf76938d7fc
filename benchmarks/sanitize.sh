#!/bin/sh
# compute-sanitizer over GPU tests that launch kernels of ours: memcheck (accesses that are out of bounds or misaligned) over kernels of
# every form, racecheck (shared memory) over the kernels that use it. Libraries' kernels are theirs to check, so tests of those are left
# out. Fails if a test fails, or if the tool has anything to report.
#
#     sh benchmarks/sanitize.sh [memcheck|racecheck]     both by default
#
# PYTHON is the interpreter to use (python3); PYTEST_ARGS are more arguments for pytest.
set -eu
cd "$(dirname "$0")/.."

check() {
    tool=$1
    selection=$2
    shift 2
    echo "$tool:" "$@"
    options="--tool $tool --error-exitcode 1"
    # Libraries ask the driver for what it may not have: a call that fails is no finding.
    [ "$tool" != memcheck ] || options="$options --report-api-errors no"
    # shellcheck disable=SC2086
    PYTHONPATH=toolkit compute-sanitizer $options "${PYTHON:-python3}" -m pytest -q -p tests.unpooled -m gpu -k "$selection" "$@" ${PYTEST_ARGS:-}
}

memcheck() {
    check memcheck "(float16 or whole_numbers or every_form or softmax or fused or same_twice or stateful or runs_in_a_row or broadcast_sum or stamped_twins or in_place or views or (reductions and int8 and not limits)) and not matmul and not convolution" \
        tests/kernels tests/ops/test_operators_on_cuda.py tests/ops/test_reductions_on_cuda.py tests/ops/test_views_on_cuda.py tests/engines/test_engines_on_cuda.py \
        tests/recording/test_stamps_on_cuda.py
}

racecheck() {
    check racecheck "stamped_twins or softmax or reductions or gradients or same_twice or test_sums or test_copies" \
        tests/kernels/test_broadcast_sum_numbers.py tests/kernels/test_view_numbers.py tests/ops/test_operators_on_cuda.py tests/ops/test_reductions_on_cuda.py \
        tests/recording/test_stamps_on_cuda.py
}

case ${1:-both} in
    memcheck | racecheck) "$1" ;;
    both) memcheck && racecheck ;;
    *) echo "what is '$1'? memcheck or racecheck" >&2; exit 2 ;;
esac
