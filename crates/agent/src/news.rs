//! What a joined cluster tells an agent, and what the agent makes of it.

use serde::Serialize;

use crate::app::{App, InForce};
use crate::keeper::PlanTold;

#[derive(Serialize)]
struct Told<'a> {
    text: &'a str,
}

impl App {
    /// Something happened to a machine of the cluster.
    pub(crate) fn note_node(&self, text: &str) {
        self.journal.note("node", &Told { text });
    }

    /// Something was not done, or cannot be used.
    pub(crate) fn note_failure(&self, text: &str) {
        self.journal.note("failed", &Told { text });
    }

    /// This machine lost its place in the cluster or has it again, or etcd does not answer or does again.
    pub(crate) fn note_membership(&self, text: &str) {
        self.journal.note("membership", &Told { text });
    }

    /// The plan in force, as it was last told.
    pub(crate) fn plan(&self) -> Option<InForce> {
        self.lock().clone()
    }

    /// Which plan is in force, as it was last told.
    pub(crate) fn plan_number(&self) -> Option<u64> {
        self.lock().as_ref()?.number
    }

    /// Another plan is in force, or none.
    pub(crate) fn take_plan(&self, plan: Option<InForce>) {
        let standing = plan.as_ref().map(|plan| std::sync::Arc::clone(&plan.standing));
        let before = std::mem::replace(&mut *self.lock(), plan);
        match standing {
            Some(standing) => self.note_standing(&standing),
            None if before.is_some() => {
                tracing::info!("no plan is in force");
                self.journal.note("plan", &PlanTold { standing: None });
            }
            None => {}
        }
    }

    /// The plan in force was audited again.
    pub(crate) fn take_standing(&self, plan: InForce) {
        let mut held = self.lock();
        // Another one has taken its place meanwhile.
        let Some(before) = held.as_mut().filter(|before| before.number == plan.number) else { return };
        let differs = before.standing.checked.broken != plan.standing.checked.broken;
        let standing = std::sync::Arc::clone(&plan.standing);
        *before = plan;
        drop(held);
        if differs {
            if !standing.holds() {
                tracing::warn!("{standing}");
            }
            self.note_standing(&standing);
        }
    }
}
