//! The generator's own orders: just enough of a book that what is generated conforms.
//!
//! A side is a sorted vector with the best order at its end. It has a stated maximum, so that memory per symbol is
//! constant and an insertion moves at most a few kilobytes.

/// A resting order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) reference: u64,
    pub(super) price: u32,
    pub(super) shares: u32,
}

/// Buy or sell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Which {
    #[default]
    Bid,
    Ask,
}

impl Which {
    /// As messages say it.
    pub(super) const fn byte(self) -> u8 {
        match self {
            Which::Bid => b'B',
            Which::Ask => b'S',
        }
    }
}

/// One side of one symbol's book: worst order first, best last; at one price, the latest first.
#[derive(Clone, Debug)]
pub(super) struct Side {
    which: Which,
    orders: Vec<Order>,
    /// The most orders. Not the vector's capacity, which an allocator may round up.
    limit: usize,
}

impl Side {
    pub(super) fn new(which: Which, limit: usize) -> Side {
        Side { which, orders: Vec::with_capacity(limit), limit }
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.orders.len() >= self.limit
    }

    pub(super) fn best(&self) -> Option<Order> {
        self.orders.last().copied()
    }

    pub(super) fn get(&self, index: usize) -> Order {
        self.orders[index]
    }

    /// Where the order with this reference and price rests.
    pub(super) fn find(&self, reference: u64, price: u32) -> Option<usize> {
        let place = self.orders.partition_point(|other| match self.which {
            Which::Bid => other.price < price,
            Which::Ask => other.price > price,
        });
        let level = self.orders[place..].iter().take_while(|other| other.price == price);
        level.enumerate().find(|(_, other)| other.reference == reference).map(|(nth, _)| place + nth)
    }

    /// Puts an order behind those of its price. The side is not full.
    pub(super) fn insert(&mut self, order: Order) {
        assert!(!self.is_full(), "a side holds at most {} orders", self.limit);
        let place = match self.which {
            Which::Bid => self.orders.partition_point(|other| other.price < order.price),
            Which::Ask => self.orders.partition_point(|other| other.price > order.price),
        };
        self.orders.insert(place, order);
    }

    pub(super) fn remove(&mut self, index: usize) -> Order {
        self.orders.remove(index)
    }

    /// Takes `shares`, no more than there are, off an order; it leaves when nothing is left.
    pub(super) fn take(&mut self, index: usize, shares: u32) {
        let order = &mut self.orders[index];
        assert!(shares <= order.shares, "{shares} taken off {}", order.shares);
        order.shares -= shares;
        if order.shares == 0 {
            self.orders.remove(index);
        }
    }
}
