//! What Linux tells: its own messages about devices, and the files that appear and vanish under `/dev`.
//!
//! The messages do not reach every container; the files do wherever they are shared. Neither needs a privilege. Both wake a
//! thread that otherwise sleeps.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// The messages of the kernel itself; those of user space come in another group.
const KERNEL_GROUP: u32 = 1;

/// Files of devices that can hold layers.
const NAMES: &[&str] = &["accel", "card", "dri", "dxg", "kfd", "nvidia", "renderD", "vfio"];

/// Kinds of device that a profile tells of.
const SUBSYSTEMS: &[&[u8]] = &[b"accel", b"cpu", b"drm", b"kfd", b"memory", b"nvidia", b"pci"];

/// What happens to them that can change a profile.
const ACTIONS: &[&[u8]] = &[b"add", b"bind", b"offline", b"online", b"remove", b"unbind"];

/// Calls somebody whenever the kernel tells of a device, until it is dropped.
#[derive(Debug)]
pub(crate) struct HotPlug {
    // Both or none: without anything to listen to there is no thread.
    listener: Option<(Arc<OwnedFd>, JoinHandle<()>)>,
}

impl HotPlug {
    pub(crate) fn listen(news: impl Fn() + Send + 'static) -> Self {
        let dev = Path::new("/dev");
        let folders = [dev.to_owned(), dev.join("accel"), dev.join("dri"), dev.join("nvidia-caps")];
        Self::listen_to(Sources { messages: messages().ok(), files: files(&folders).ok() }, news)
    }

    fn listen_to(sources: Sources, news: impl Fn() + Send + 'static) -> Self {
        tracing::debug!(
            messages = sources.messages.is_some(),
            files = sources.files.is_some(),
            "listening to news of devices"
        );
        let started = if sources.is_empty() { Ok(None) } else { start(sources, news).map(Some) };
        let listener = started.unwrap_or_else(|error| {
            tracing::warn!("cannot listen to news of devices, so changes are seen at the next look: {error}");
            None
        });
        Self { listener }
    }
}

impl Drop for HotPlug {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.listener.take() {
            // The counter of an eventfd takes this while it is small, and nobody else adds to it.
            match rustix::io::write(&*stop, &1_u64.to_ne_bytes()) {
                Ok(_) | Err(_) => {}
            }
            // A panic in there was told on stderr.
            drop(thread.join());
        }
    }
}

fn start(
    mut sources: Sources,
    news: impl Fn() + Send + 'static,
) -> io::Result<(Arc<OwnedFd>, JoinHandle<()>)> {
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let stopped = Arc::clone(&stop);
    let run = move || {
        while let Some(any) = sources.wait(stopped.as_fd()) {
            if any {
                news();
            }
        }
    };
    let thread = thread::Builder::new().name("plimsoll-news".to_owned()).spawn(run)?;
    Ok((stop, thread))
}

/// Where news come from.
#[derive(Debug)]
struct Sources {
    messages: Option<OwnedFd>,
    files: Option<Files>,
}

#[derive(Debug)]
struct Files {
    queue: OwnedFd,
    // In the others every name is news.
    mixed: Option<i32>,
}

impl Sources {
    fn is_empty(&self) -> bool {
        self.messages.is_none() && self.files.is_none()
    }

    /// Sleeps until something is told; whether it concerns us. `None` when it is time to stop.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> Option<bool> {
        if self.is_empty() {
            return None;
        }
        let mut ready = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        ready.extend(self.messages.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        ready.extend(self.files.iter().map(|files| PollFd::new(&files.queue, PollFlags::IN)));
        match poll(&mut ready, None) {
            Err(Errno::INTR) => return Some(false),
            Err(_) => return None,
            Ok(_) if !ready[0].revents().is_empty() => return None,
            Ok(_) => {}
        }
        // One that fails is not listened to any more: it would wake us again at once.
        let mut any = false;
        match self.messages.as_ref().map(read_messages) {
            Some(Ok(told)) => any |= told,
            Some(Err(_)) => self.messages = None,
            None => {}
        }
        match self.files.as_ref().map(Files::read) {
            Some(Ok(told)) => any |= told,
            Some(Err(_)) => self.files = None,
            None => {}
        }
        Some(any)
    }
}

/// A socket for the kernel's messages about devices.
fn messages() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

/// Reads all that waits; whether any of it concerns us.
fn read_messages(socket: &OwnedFd) -> Result<bool, Errno> {
    let mut buffer = [0; 8192];
    let mut any = false;
    loop {
        match rustix::io::read(socket, &mut buffer) {
            Ok(0) => return Err(Errno::PIPE),
            Ok(read) => any |= concerns_us(&buffer[..read]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(any),
            // Some were lost: who knows which.
            Err(Errno::NOBUFS) => any = true,
            Err(error) => return Err(error),
        }
    }
}

/// Whether a message (`add@/devices/…`, then `KEY=value` fields, each ended by a zero) tells of a device that a profile
/// tells of.
fn concerns_us(message: &[u8]) -> bool {
    let field = |key: &[u8]| message.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(key));
    let is_in = |value: Option<&[u8]>, list: &[&[u8]]| value.is_some_and(|value| list.contains(&value));
    // A graphics device that hangs is told as a change.
    let wedged = field(b"WEDGED=").is_some();
    is_in(field(b"SUBSYSTEM="), SUBSYSTEMS) && (wedged || is_in(field(b"ACTION="), ACTIONS))
}

/// Listens to files that come and go in these folders, in the first one only to those named like devices of ours.
fn files(folders: &[PathBuf]) -> io::Result<Files> {
    let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let what = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVED_FROM
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::ONLYDIR;
    let mut watched = folders.iter().map(|folder| inotify::add_watch(&queue, folder, what));
    let mixed = watched.next().and_then(Result::ok);
    let others = watched.filter(Result::is_ok).count();
    if mixed.is_none() && others == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(Files { queue, mixed })
}

impl Files {
    /// Reads all that waits; whether any of it concerns us.
    fn read(&self) -> Result<bool, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.queue, &mut buffer);
        let mut any = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let lost = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                    any |= lost || Some(event.wd()) != self.mixed || event.file_name().is_some_and(is_ours);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(any),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_ours(name: &CStr) -> bool {
    NAMES.iter().any(|ours| name.to_bytes().starts_with(ours.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;

    use super::*;

    fn message(fields: &[&str]) -> Vec<u8> {
        fields.iter().flat_map(|field| field.bytes().chain([0])).collect()
    }

    #[test]
    fn messages_about_devices_that_hold_layers_are_told_from_others() {
        let cases: [(&[&str], bool); 7] = [
            (
                &["remove@/devices/pci0000:00/0000:01:00.0", "ACTION=remove", "SUBSYSTEM=pci", "SEQNUM=7"],
                true,
            ),
            (&["add@/devices/x/drm/card1", "ACTION=add", "SUBSYSTEM=drm"], true),
            (&["offline@/devices/system/cpu/cpu3", "ACTION=offline", "SUBSYSTEM=cpu"], true),
            (&["change@/devices/x/drm/card1", "ACTION=change", "SUBSYSTEM=drm", "HOTPLUG=1"], false),
            (&["change@/devices/x/drm/card1", "ACTION=change", "SUBSYSTEM=drm", "WEDGED=rebind"], true),
            (&["add@/devices/virtual/net/veth0", "ACTION=add", "SUBSYSTEM=net"], false),
            (&["add@/devices/x", "ACTION=add"], false),
        ];
        for (fields, concerns) in cases {
            assert_eq!(concerns_us(&message(fields)), concerns, "{fields:?}");
        }
        assert!(!concerns_us(b"") && !concerns_us(&[0; 64]) && !concerns_us(b"SUBSYSTEM=pci"));
    }

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
            fs::create_dir_all(folder.join("dri")).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_file_of_a_device_that_comes_or_goes_is_news_at_once() {
        let folder = Folder::new("dev");
        let sources = Sources {
            messages: None,
            files: Some(files(&[folder.0.clone(), folder.0.join("dri")]).unwrap()),
        };
        let (sender, told) = mpsc::channel();
        let listens = HotPlug::listen_to(sources, move || sender.send(()).unwrap());
        let card = folder.0.join("nvidia7");
        for step in [&|| fs::write(&card, []).unwrap() as (), &|| fs::remove_file(&card).unwrap(), &|| {
            fs::write(folder.0.join("dri/anything"), []).unwrap()
        }] as [&dyn Fn(); 3]
        {
            step();
            told.recv().unwrap();
        }
        // What is not ours is no news: the next one is that of the card.
        fs::write(folder.0.join("tty99"), []).unwrap();
        drop(listens);
        assert!(told.recv().is_err(), "nothing more, and the thread is gone");
    }

    #[test]
    fn without_anything_to_listen_to_there_is_no_thread() {
        assert!(files(&[PathBuf::from("/no/such/folder")]).is_err());
        let listens = HotPlug::listen_to(Sources { messages: None, files: None }, || {});
        assert!(listens.listener.is_none());
    }

    #[test]
    fn listening_to_this_machine_ends_when_it_is_dropped() {
        drop(HotPlug::listen(|| {}));
    }
}
