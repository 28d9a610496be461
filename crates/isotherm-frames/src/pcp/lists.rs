//! Which list holds which blocks, and the capacity and refill size of each.

use crate::percpu::LISTS;
use crate::tune::PcpLimits;
use crate::zone::CHUNK;
use crate::{MigrateType, Order, PAGE_BLOCK_ORDER};

/// The largest of the small orders that have lists: the kernel's `PAGE_ALLOC_COSTLY_ORDER`.
const SMALL_ORDERS: u32 = 3;
/// Most entries of a list of order 0, unless configured otherwise: 64 MiB of frames.
const MAX_FRAMES_A_LIST: u32 = 16 << 10;
/// Most huge pages in a list.
const MAX_HUGE_A_LIST: u32 = 64;

/// The list for blocks of an order and type; `None` for orders that go to the zone.
#[inline]
pub(crate) const fn list_of(order: Order, migrate: MigrateType) -> Option<usize> {
    match order.get() {
        0..=SMALL_ORDERS => Some(MigrateType::COUNT * order.get() as usize + migrate as usize),
        PAGE_BLOCK_ORDER => Some(LISTS - 2 + matches!(migrate, MigrateType::Movable) as usize),
        _ => None,
    }
}

/// The order of the blocks in a list.
pub(crate) const fn order_of(list: usize) -> Order {
    ORDER_OF[list]
}

/// Computed at compile time, because every visit to the zone needs the orders of all lists.
const ORDER_OF: [Order; LISTS] = {
    let mut orders = [Order::HUGE; LISTS];
    let mut order = 0;
    while let Some(small) = Order::new(order)
        && order <= SMALL_ORDERS
    {
        let mut of_type = 0;
        while of_type < MigrateType::COUNT {
            orders[MigrateType::COUNT * order as usize + of_type] = small;
            of_type += 1;
        }
        order += 1;
    }
    orders
};

/// How many blocks to take from the zone for a list that wants `wanted`. For a chunk of single frames or more, adds
/// one, which is allocated at once, and rounds up to whole chunks. A batch is 63 frames on purpose, but runs of 64 are
/// cut from the zone's blocks in one piece and leave the rest aligned.
pub(crate) fn whole_chunks(wanted: u32, order: Order) -> usize {
    let wanted = wanted as usize;
    match order {
        Order::FRAME if wanted + 1 >= CHUNK => (wanted + 1).next_multiple_of(CHUNK),
        _ => wanted,
    }
}

/// Capacity of each list in entries.
pub(crate) fn capacities(limits: PcpLimits) -> [u32; LISTS] {
    let frames = limits.high_max.min(MAX_FRAMES_A_LIST);
    core::array::from_fn(|list| match order_of(list) {
        Order::HUGE => (frames >> PAGE_BLOCK_ORDER).clamp(2, MAX_HUGE_A_LIST),
        order => (frames >> order.get()).max(2),
    })
}

/// The total frames of this many blocks in each list.
pub(super) fn frames_in(counts: &[u32; LISTS]) -> u32 {
    counts
        .iter()
        .zip(ORDER_OF)
        .fold(0, |frames, (&count, order)| frames.saturating_add(count.saturating_mul(order.frames())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_is_that_of_its_order_and_type() {
        let listed = Order::all().filter(|order| order.get() <= SMALL_ORDERS || *order == Order::HUGE);
        for (order, migrate) in listed.flat_map(|order| MigrateType::ALL.map(|migrate| (order, migrate))) {
            assert_eq!(list_of(order, migrate).map(order_of), Some(order));
        }
        assert_eq!(list_of(Order::MAX, MigrateType::Movable), None);
        // One block in each: three of each small order, and two huge ones.
        assert_eq!(frames_in(&[1; LISTS]), 3 * (1 + 2 + 4 + 8) + 2 * 512);
    }
}
