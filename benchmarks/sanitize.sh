#!/bin/sh
# compute-sanitizer over GPU tests that launch kernels of ours: memcheck (accesses that are out of bounds or misaligned) over kernels of
# every form, racecheck (shared memory) over the kernels that use it, initcheck (reads of memory that nothing has written) over the gradients
# of programs and the copies of calls. Libraries' kernels are theirs to check, so tests of those are left out. Fails if a test fails, or if
# the tool has anything to report.
#
#     sh benchmarks/sanitize.sh [memcheck|racecheck|initcheck]     all by default
#
# PYTHON is the interpreter to use (python3); PYTEST_ARGS are more arguments for pytest.
set -eu
cd "$(dirname "$0")/.."
GRADIENTS_AND_CALLS="tests/differentiating/test_gradients_on_cuda.py tests/parallelising/test_quick_call_on_cuda.py"

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
    check memcheck "(float16 or whole_numbers or every_form or softmax or fused or same_twice or stateful or runs_in_a_row or broadcast_sum or stamped_twins or in_place or views or (reductions and int8 and not limits) or random_programs or copied_each) and not matmul and not convolution" \
        tests/kernels tests/ops/test_operators_on_cuda.py tests/ops/test_reductions_on_cuda.py tests/ops/test_views_on_cuda.py tests/engines/test_engines_on_cuda.py \
        tests/recording/test_stamps_on_cuda.py $GRADIENTS_AND_CALLS
}

racecheck() {
    check racecheck "stamped_twins or softmax or reductions or gradients or same_twice or test_sums or test_copies or random_programs or copied_each" \
        tests/kernels/test_broadcast_sum_numbers.py tests/kernels/test_view_numbers.py tests/ops/test_operators_on_cuda.py tests/ops/test_reductions_on_cuda.py \
        tests/recording/test_stamps_on_cuda.py $GRADIENTS_AND_CALLS
}

initcheck() {
    check initcheck "random_programs or copied_each" $GRADIENTS_AND_CALLS
}

case ${1:-all} in
    memcheck | racecheck | initcheck) "$1" ;;
    all) memcheck && racecheck && initcheck ;;
    *) echo "what is '$1'? memcheck, racecheck or initcheck" >&2; exit 2 ;;
esac
