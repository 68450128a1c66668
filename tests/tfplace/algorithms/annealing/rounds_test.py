from tfplace.algorithms.annealing.rounds import Round, Slot, longest_plan, plans, slots_of

ROUNDS = [Round(4, is_fused=True), Round(2, is_fused=True), Round(1, weight=2.0)]


def test_slots_share_out_the_rounds():
    assert slots_of(ROUNDS, 2) == [
        Slot(0, 0, 0.0, 0.125),
        Slot(0, 1, 0.125, 0.25),
        Slot(1, 0, 0.25, 0.5),
        Slot(2, 0, 0.5, 1.0),
    ]


def test_plans_get_shorter():
    numbers = [[(each.num_candidates, each.is_fused) for each in plan] for plan in plans(ROUNDS)]
    assert numbers == [
        [(4, True), (2, True), (1, False)],
        [(2, True), (1, True), (1, False)],
        [(1, True), (1, True), (1, False)],
        [(1, True), (1, False)],
        [(1, True)],
    ]
    assert plans([Round(2), Round(1)])[-1] == [Round(1)]


def test_the_fullest_plan_that_fits_is_taken():
    def found(seconds, least_fused=1.0):
        plan = longest_plan(ROUNDS, 2, seconds, {True: least_fused, False: 2.0})
        return [each.num_candidates for each in plan]

    assert found(8.0) == [4, 2, 1]
    assert found(7.9) == [2, 1, 1]
    assert found(4.0) == [2, 1, 1]
    assert found(4.0, least_fused=1.1) == [1, 1]  # three rounds would be 1, 1 and 2 s
    assert found(3.9) == [1]
