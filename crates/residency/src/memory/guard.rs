//! Bookings and uses that end with their guard.

use super::ResidencyLedger;
use crate::{Booking, CoResidency, InferenceSpec, Request, Timestamp};

/// A booking that ends when this is dropped.
#[derive(Debug)]
#[must_use = "dropping a reservation gives its memory back at once"]
pub struct Reservation {
    ledger: ResidencyLedger,
    instance: String,
    // Tells this booking from a later one of the same instance.
    ticket: u64,
    kept: bool,
}

/// A use under way that ends when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the use at once"]
pub struct InUse {
    ledger: ResidencyLedger,
    instance: String,
    ticket: u64,
}

impl ResidencyLedger {
    /// Books a request for as long as the guard lives.
    ///
    /// # Errors
    ///
    /// Refused, or its instance holds something already.
    pub fn hold(&self, request: &Request, now: Timestamp) -> Result<Reservation, CoResidency> {
        let ticket = self.run(Some(now), |book, now| book.hold(request, now))?;
        Ok(Reservation::of(self, &request.instance, ticket))
    }

    /// Counts a use of this instance for as long as the guard lives; `None` when it holds nothing.
    pub fn in_use(&self, instance: &str) -> Option<InUse> {
        let ticket = self.run(None, |book, _| {
            let ticket = book.numbered(instance)?;
            book.begin_use(instance).then_some(ticket)
        })?;
        Some(InUse { ledger: self.clone(), instance: instance.to_owned(), ticket })
    }
}

impl Reservation {
    pub(super) fn of(ledger: &ResidencyLedger, instance: &str, ticket: u64) -> Self {
        Self { ledger: ledger.clone(), instance: instance.to_owned(), ticket, kept: false }
    }

    /// The running copy that holds it.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What it holds; `None` when it was released or reclaimed behind the guard's back.
    pub fn booking(&self) -> Option<Booking> {
        self.ledger
            .look(|book| book.get(&self.instance).filter(|held| held.ticket == Some(self.ticket)).cloned())
    }

    /// Changes what it holds; false when it is the same already.
    ///
    /// # Errors
    ///
    /// Refused: then the old booking stands.
    pub fn resize(&self, spec: &InferenceSpec) -> Result<bool, CoResidency> {
        self.ledger.reserve(&self.instance, spec)
    }

    /// Leaves the booking in the ledger without a guard; the instance that has to be released.
    pub fn keep(mut self) -> String {
        self.kept = true;
        std::mem::take(&mut self.instance)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.kept {
            self.ledger.run(None, |book, _| book.release_ticket(&self.instance, self.ticket));
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.ledger.run(None, |book, _| {
            if book.get(&self.instance).is_some_and(|held| held.ticket == Some(self.ticket)) {
                book.end_use(&self.instance);
            }
        });
    }
}
