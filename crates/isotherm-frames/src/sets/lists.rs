//! Which list is for which blocks, and how much each holds and takes.

use crate::percpu::LISTS;
use crate::tune::Marks;
use crate::zone::CHUNK;
use crate::{MigrateType, Order, PAGE_BLOCK_ORDER};

/// The largest of the small orders that a set has lists for: what the kernel calls costly begins above.
const SMALL_ORDERS: u32 = 3;
/// Entries of a list for order 0 at the most, unless told otherwise: 64 MiB of frames.
const MAX_FRAMES_A_LIST: u32 = 16 << 10;
/// Huge pages in a list at the most.
const MAX_HUGE_A_LIST: u32 = 64;

/// The list of a set for blocks of an order and type; `None` for orders that go to the zone.
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

/// Computed once: every visit to the zone asks for the orders of all lists.
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

/// Blocks to take for a list that is to get `wanted`. One more, which is handed out at once; and of single frames whole chunks: a
/// batch is 63 of them on purpose, but runs of 64 are cut from the zone's blocks in one piece, and leave what is left aligned.
pub(crate) fn whole_chunks(wanted: u32, order: Order) -> usize {
    let wanted = wanted as usize;
    match order {
        Order::FRAME if wanted + 1 >= CHUNK => (wanted + 1).next_multiple_of(CHUNK),
        _ => wanted,
    }
}

/// Entries that each list can hold.
pub(crate) fn capacities(marks: Marks) -> [u32; LISTS] {
    let frames = marks.high_max.min(MAX_FRAMES_A_LIST);
    core::array::from_fn(|list| match order_of(list) {
        Order::HUGE => (frames >> PAGE_BLOCK_ORDER).clamp(2, MAX_HUGE_A_LIST),
        order => (frames >> order.get()).max(2),
    })
}

/// Frames of so many blocks in each list.
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
