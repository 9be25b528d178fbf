//! Tests of the memory budget: loans, shares and the queue.

use sabul_units::{Random as _, SeededRandom};

use super::*;

const MIB: usize = 1 << 20;
const BLOCK: u32 = 1 << 20;

#[test]
fn a_single_transfer_may_use_all_memory_except_the_reserve() {
    let budget = MemoryBudget::of(512 * MIB);
    let mut loan = budget.channel(BLOCK).unwrap();
    assert_eq!((loan.blocks(), loan.block_bytes()), (BLOCKS_MIN, BLOCK));
    while loan.borrow(loan.blocks()) > 0 {}
    assert_eq!(loan.blocks(), 447);
    assert_eq!(budget.lent(), 447 * MIB + CHANNEL_BYTES);
    drop(loan);
    assert_eq!(budget.lent(), 0);
}

#[test]
fn large_loans_shrink_until_every_transfer_has_a_share() {
    let budget = MemoryBudget::of(1024 * MIB);
    let mut rich = budget.channel(BLOCK).unwrap();
    while rich.borrow(rich.blocks()) > 0 {}
    assert_eq!((rich.blocks(), rich.excess()), (895, 0), "nobody waits");
    let mut others: Vec<_> = (0..3).map(|_| budget.channel(BLOCK).unwrap()).collect();
    for _ in 0..100 {
        // Each returns a block now and then, and borrows more.
        rich.give_back(rich.excess().min(8));
        for other in &mut others {
            other.borrow(4);
        }
        assert!(budget.lent() <= budget.bytes());
    }
    let share = 1024 * 7 / 8 / 4;
    assert!(rich.blocks() >= share - 1, "{}", rich.blocks());
    for other in &others {
        assert!(other.blocks() >= share - 8, "{}", other.blocks());
    }
    drop((rich, others));
    assert_eq!(budget.lent(), 0);
}

#[test]
fn each_waiting_transfer_counts_for_the_shares_whichever_side_opened_it() {
    for (own, peers, excess) in [(0, 0, 0), (1, 0, 448), (0, 1, 448), (1, 1, 597), (2, 1, 672)] {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut rich = budget.channel(BLOCK).unwrap();
        while rich.borrow(rich.blocks()) > 0 {}
        // Less than the reserve is left.
        let _sessions: Vec<_> = (0..16).map(|_| budget.session().unwrap()).collect();
        let _own: Vec<_> = (0..own).map(|_| budget.line_up(Initiator::Here)).collect();
        let _peers: Vec<_> = (0..peers).map(|_| budget.line_up(Initiator::Peer)).collect();
        // 895 blocks and 384 KiB, less an equal part of 896 MiB.
        assert_eq!(rich.excess(), excess, "{own} own, {peers} of peers");
    }
}

#[test]
fn there_is_room_for_exactly_the_sessions_that_find_memory() {
    let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
    let rooms = (1..).take_while(|count| budget.has_room_for_sessions(*count)).count();
    let sessions: Vec<_> = std::iter::from_fn(|| budget.session().ok()).collect();
    assert_eq!(sessions.len(), rooms);
    assert!(rooms > 200 && !budget.has_room_for_sessions(1));
}

#[test]
fn sessions_leave_memory_for_the_next_transfer_of_a_peer_after_a_small_one() {
    let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
    let mut small = budget.channel(4096).unwrap();
    small.give_back(BLOCKS_MIN);
    let sessions: Vec<_> = std::iter::from_fn(|| budget.session().ok()).collect();
    drop(small);
    let next = budget.channel(BLOCK).unwrap();
    assert!(budget.lent() <= budget.bytes());
    drop((sessions, next));
}

#[test]
fn block_sizes_shrink_before_a_transfer_is_refused() {
    let budget = MemoryBudget::of(64 * MIB);
    let mut loans = Vec::new();
    let refusal = loop {
        match budget.channel(BLOCK) {
            Ok(loan) => loans.push(loan),
            Err(refusal) => break refusal.to_string(),
        }
    };
    assert_eq!(loans[0].block_bytes(), BLOCK);
    assert!(loans.is_sorted_by(|a, b| a.block_bytes() >= b.block_bytes()));
    assert!(loans.len() > 50, "{}", loans.len());
    assert!(refusal.contains(&format!("{} transfers", loans.len())), "{refusal}");
    assert!(refusal.contains("64 MiB") && refusal.contains("--memory"), "{refusal}");
    loans.pop();
    assert!(budget.channel(BLOCK).is_ok(), "there is room again");
    // Blocks requested with a small size keep that size.
    drop(loans);
    assert_eq!(budget.channel(4096).unwrap().block_bytes(), 4096);
}

#[test]
fn two_hundred_busy_and_two_thousand_idle_sessions_fit_a_gibibyte() {
    let budget = MemoryBudget::of(1024 * MIB);
    let sessions: Vec<_> = (0..2200).map(|_| budget.session().unwrap()).collect();
    let mut busy: Vec<_> = (0..200).map(|_| budget.channel(BLOCK).unwrap()).collect();
    let sockets: usize = (0..200).map(|_| budget.socket_bytes()).sum();
    assert!(sockets <= 200 * 256 * 1024, "{sockets}");
    for _ in 0..20 {
        for loan in &mut busy {
            loan.give_back(loan.excess());
            loan.borrow(1);
        }
    }
    assert!(budget.lent() <= 1024 * MIB);
    let bytes = |loan: &BlockLoan| loan.blocks() * loan.block_bytes() as usize;
    let least = busy.iter().map(bytes).min().unwrap();
    let most = busy.iter().map(bytes).max().unwrap();
    assert!(least * 4 >= most, "{least} and {most}");
    drop((sessions, busy));
    assert_eq!(budget.lent(), 0);
}

#[test]
fn a_per_transfer_budget_is_granted_at_once_and_never_grows() {
    let budget = MemoryBudget::each(Bytes(48 << 20));
    let mut one = budget.channel(BLOCK).unwrap();
    let other = budget.channel(16 << 20).unwrap();
    assert_eq!((one.blocks(), one.borrow(1), one.excess()), (48, 0, 0));
    assert_eq!((other.blocks(), other.block_bytes()), (BLOCKS_MIN, 16 << 20));
}

#[test]
fn shrinking_the_blocks_returns_the_rest() {
    let budget = MemoryBudget::of(64 * MIB);
    let mut loan = budget.channel(BLOCK).unwrap();
    loan.shrink_blocks(1 << 16);
    assert_eq!(loan.blocks(), BLOCKS_MIN);
    assert_eq!(budget.lent(), (BLOCKS_MIN << 16) + CHANNEL_BYTES);
}

/// The sum is right after any order of borrowing and returning.
#[test]
fn the_lent_total_equals_the_sum_of_all_loans() {
    for seed in 0..200 {
        let mut random = SeededRandom::new(seed);
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN << random.below(4));
        let (mut sessions, mut channels) = (Vec::new(), Vec::new());
        for _ in 0..500 {
            let amount = usize::try_from(random.below(40)).unwrap();
            match random.below(7) {
                0 => sessions.extend(budget.session()),
                1 => drop(sessions.pop()),
                2 => channels.extend(budget.channel(4096 << random.below(9))),
                3 if !channels.is_empty() => {
                    channels.swap_remove(amount % channels.len());
                }
                kind if !channels.is_empty() => {
                    let index = amount % channels.len();
                    let loan: &mut BlockLoan = &mut channels[index];
                    match kind {
                        4 => {
                            loan.borrow(amount);
                        }
                        5 => loan.give_back(amount),
                        _ => loan.give_back(loan.excess()),
                    }
                }
                _ => {}
            }
            let blocks = channels.iter().map(|it| it.blocks() * it.block_bytes() as usize);
            let sum = blocks.sum::<usize>()
                + channels.len() * CHANNEL_BYTES
                + sessions.len() * SESSION_BYTES;
            assert_eq!(budget.lent(), sum, "seed {seed}");
            assert!(sum <= budget.bytes(), "seed {seed}");
            assert!(channels.iter().all(|loan| loan.blocks() >= BLOCKS_LEAST), "seed {seed}");
        }
        drop((sessions, channels));
        assert_eq!(budget.lent(), 0, "seed {seed}");
        let state = budget.pool.lock();
        assert_eq!((state.ends, state.accepted), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_budget_below_the_minimum_is_rejected() {
    let least = MemoryBudget::BYTES_MIN as u64;
    assert_eq!(MemoryBudget::new(Bytes(least)).unwrap().bytes() as u64, least);
    let error = MemoryBudget::new(Bytes(least - 1)).unwrap_err().to_string();
    assert!(error.contains("give at least 16 MiB"), "{error}");
}

#[test]
fn further_paths_of_a_sending_end_borrow_memory_and_leave_the_shares_as_they_are() {
    let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
    let end = budget.channel(BLOCK).unwrap();
    let (ends, lent) = (budget.ends(), budget.lent());
    let path = budget.path().unwrap();
    assert_eq!((budget.ends(), budget.lent()), (ends, lent + CHANNEL_BYTES));
    let others: Vec<_> = std::iter::from_fn(|| budget.path().ok()).collect();
    let free = budget.bytes() - budget.lent() - MemoryBudget::BYTES_MIN / QUEUES_PART;
    assert!((10..64).contains(&others.len()) && free < CHANNEL_BYTES, "{}", others.len());
    budget.session().unwrap();
    drop(path);
    budget.path().unwrap();
    drop((others, end));
    assert_eq!((budget.ends(), budget.lent()), (0, 0));
}
