//! `plimsoll run`: a command with its memory booked for as long as it runs.

#[cfg(unix)]
mod carry;
mod device;

use std::time::Duration;

use plimsoll::residency::{Request, Terms};
use plimsoll::units::PoolId;

use super::args::RunArgs;
use super::refuse::Telling;
use super::{Ledger, now, reserve};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};

/// The exit status of a refusal, which is none that the command would have.
const REFUSED: u8 = 125;

/// How long a booking outlives this process for those who cannot see it.
const LEASE: Duration = Duration::from_secs(60);

/// The name of the running copy that process `pid` watches over.
pub(super) fn instance_of(role: &str, pid: u32) -> String {
    format!("{role}.{pid}")
}

/// A booking that ends when this is dropped, however that comes.
struct Held<'a> {
    ledger: &'a Ledger,
    request: &'a Request,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Where this fails, the end of this process ends the booking all the same.
        let _ended = self.ledger.store.release_instance(&self.request.instance, now());
    }
}

pub(crate) fn run(args: &RunArgs, cli: &Cli) -> Outcome {
    let device = args.device.as_deref().map(device::find).transpose()?;
    let ledger = Ledger::open(&args.ledger, args.needs.pool.as_ref())?;
    let book = ledger.book()?;
    // A device draws on the pool of its own name, where the ledger has one.
    let of_device = args.device.as_deref().and_then(|name| PoolId::new(name).ok());
    let of_device = of_device.filter(|pool| book.pool(pool.as_str()).is_some());
    let pool = args.needs.pool.clone().or(of_device);
    let spec = args.needs.spec(&args.role, &args.exclude, pool.as_ref(), &book)?;
    let terms = Terms {
        owners: vec![ledger.this_process()],
        // A cluster's ledger lives on the lease of this process in etcd.
        lease: ledger.lease.is_none().then_some(LEASE),
        ttl: None,
        pinned: args.pin,
        priority: args.priority,
    };
    let request = Request::new(instance_of(&spec.role, std::process::id()), spec).on(terms);
    let telling = Telling { status: REFUSED, json: cli.json, timed_out: false };
    reserve::admit(&ledger, &request, args.wait, telling)?;
    let held = Held { ledger: &ledger, request: &request };
    let status = carry(&held, args, device.as_ref())?;
    drop(held);
    match status {
        0 => Ok(String::new()),
        status => Err(Failure::Ended { status, stdout: String::new(), stderr: String::new() }),
    }
}

#[cfg(unix)]
fn carry(held: &Held<'_>, args: &RunArgs, device: Option<&device::Pinned>) -> Result<u8, Failure> {
    carry::carry(held.ledger, held.request, args, device)
}

#[cfg(not(unix))]
fn carry(_held: &Held<'_>, _args: &RunArgs, _device: Option<&device::Pinned>) -> Result<u8, Failure> {
    Err(Failure::Input("this system cannot run commands under a booking yet".to_owned()))
}
