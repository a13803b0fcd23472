//! The tokens by which a scan keeps TIDs from being used again (invariant D2b, see `scan`).

use nitro_engine::{Index, Process, TokenId};

/// TID-recycle tokens of one scan: one for the current batch, one for a marked older batch.
#[derive(Default)]
pub struct Token {
    /// Whether the scan needs any, see `scan`.
    pub needed: bool,
    current: Option<TokenId>,
    /// The mark was set while `current` covered the current batch.
    marked_here: bool,
    marked: Option<TokenId>,
    /// What `current` covers is more than the current batch: it stays.
    held: bool,
}

impl Token {
    /// Call before reading a batch of the index.
    pub fn renew(&mut self, process: &Process, index: Index) {
        if !self.needed || self.held {
            return;
        }
        if std::mem::take(&mut self.marked_here) {
            self.marked = self.current.take();
        }
        match self.current {
            Some(id) => process.renew_token(id),
            None => self.current = Some(process.open_token(index.root())),
        }
    }

    /// Gives the current token up at the end of a scan, which may still go back.
    pub fn rest(&mut self, process: &Process) {
        if self.held {
            return;
        }
        let current = self.current.take();
        if std::mem::take(&mut self.marked_here) {
            self.marked = current;
        } else if let Some(id) = current {
            process.close_token(id);
        }
    }

    /// Covers what is read from now on until it is let go. (An older token keeps what is read later as well.)
    pub fn hold(&mut self, process: &Process, index: Index) {
        self.held = false;
        self.renew(process, index);
        self.held = self.current.is_some();
    }

    /// No more than the current batch is covered.
    pub fn let_go(&mut self) {
        self.held = false;
    }

    /// The scan remembers its place.
    pub fn mark(&mut self, process: &Process) {
        if let Some(old) = self.marked.take() {
            process.close_token(old);
        }
        self.marked_here = self.current.is_some();
    }

    /// It goes back there.
    pub fn restore(&mut self, process: &Process) {
        if let Some(older) = self.marked.take() {
            if let Some(id) = self.current.replace(older) {
                process.close_token(id);
            }
            self.marked_here = true;
        }
    }

    /// Gives everything up.
    pub fn close(&mut self, process: &Process) {
        for id in [self.current.take(), self.marked.take()].into_iter().flatten() {
            process.close_token(id);
        }
        (self.marked_here, self.held) = (false, false);
    }
}
