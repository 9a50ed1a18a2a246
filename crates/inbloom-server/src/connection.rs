//! Sockets and threads.
//!
//! A thread accepts connections and hands them, in turn, to as many threads as there are cores. Each
//! of those has an event loop of its own and keeps its connections for their whole life: nothing is
//! passed between threads for an ordinary request. What has arrived is read into one buffer of the
//! thread, processed as a whole, and answered by one write; only what is left of an unfinished request
//! is kept with the connection, so that ten thousand idle clients take little.
//!
//! Requests that may take more than a millisecond are moved, with the rest of what has arrived, to a
//! thread for such work, and the connection waits for it. So are the parts of a long request as they
//! arrive: memory that grows to many megabytes is new to the process, and the system takes up to 10
//! microseconds for each page of it, a tenth of a second for 500,000 items. A client that does not read its replies
//! is not read from either: it holds at most about a megabyte and its longest reply, for as long as
//! `--write-timeout` says. What all clients hold together is limited: see `clients/holdings.rs`.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{spawn_blocking, yield_now};

use crate::clients::Client;
use crate::clients::holdings::{CONNECTION, Excess};
use crate::clock::now;
use crate::server::Server;
use crate::session::{Next, Place, Progress, Session};
use crate::session_state::counted;
use crate::tls::{Stream, Tls};

/// Bytes read at once.
const READ: usize = 256 << 10;
/// After so many bytes of one client it is the others' turn.
const TURN: usize = 32 << 10;
/// Buffers that have grown beyond this are given back.
const KEEP: usize = 1 << 20;
/// An unfinished request of more bytes is put together elsewhere.
const LONG: usize = 1 << 20;
/// When the server stops, a client's requests are answered until none has come for so long: what it
/// has sent may be on its way from one of the kernel's buffers to the other.
const QUIET: Duration = Duration::from_millis(20);
/// The same for a client whose requests still came when the server stopped. The rest of them may be in
/// the network. On a busy machine, the kernel may also take longer than [`QUIET`] to pass them on.
const QUIET_IN_MIDST: Duration = Duration::from_millis(500);
/// The most time that such a client is waited for in all. Then it is [`QUIET`] again, so that a client
/// that sends a request every 100 ms does not delay the end until [`PATIENCE`] is over.
const QUIET_IN_ALL: Duration = Duration::from_secs(2);
/// A client that goes on sending then, or does not read its replies, is disconnected after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// A thread that has not ended so long after that is left behind: see [`Ended::Stuck`].
const GRACE: Duration = Duration::from_secs(5);
/// A connection that the server ends is read from, and what comes is dropped, until nothing has come
/// for so long: see `Connection::linger`.
const LINGER: Duration = Duration::from_secs(1);
/// A client that goes on sending is cut off after this.
const LONGEST_LINGER: Duration = Duration::from_secs(60);
/// Threads for long work, for each event loop.
const WORKERS: usize = 8;
/// The same where filters are on a store: such a thread waits for the network nearly all of its time.
const STORE_WORKERS: usize = 64;

/// Where clients come in.
pub struct Listeners {
    /// Those in the clear.
    pub plain: Option<TcpListener>,
    /// Those under TLS, and what they are shown.
    pub tls: Option<(TcpListener, Tls)>,
}

/// How the threads that serve clients have ended.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of them.
    All,
    /// These are still busy with something. They may hold the locks of filters, so that no snapshot
    /// can be taken: sync the log, and end the process.
    Stuck(Vec<String>),
}

/// Serves clients of `listener` until `shutdown` is ready or a client says SHUTDOWN. What connected
/// clients have sent by then is answered.
pub fn run(
    listener: TcpListener,
    server: &Arc<Server>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Ended> {
    run_all(Listeners { plain: Some(listener), tls: None }, server, shutdown)
}

/// As [`run`], for clients in the clear, under TLS, or both.
pub fn run_all(
    listeners: Listeners,
    server: &Arc<Server>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let loops: Vec<EventLoop> = (0..server.config.threads.max(1))
        .map(|at| EventLoop::start(at, server))
        .collect::<Result<_, _>>()?;
    let result = runtime(server)?.block_on(accept(listeners, server, &loops, shutdown));
    server.shut_down();
    server.clients.list().iter().for_each(|client| client.finish());
    let threads: Vec<JoinHandle<()>> = loops.into_iter().map(|each| each.thread).collect();
    wait(&threads, PATIENCE);
    server.clients.list().iter().for_each(|client| client.kill());
    wait(&threads, GRACE);
    let mut stuck = Vec::new();
    for thread in threads {
        if thread.is_finished() {
            let _ = thread.join();
        } else {
            stuck.push(thread.thread().name().unwrap_or("?").to_owned());
        }
    }
    result.map(|()| if stuck.is_empty() { Ended::All } else { Ended::Stuck(stuck) })
}

/// Waits until all threads have ended, at most so long.
fn wait(threads: &[JoinHandle<()>], most: Duration) {
    let until = Instant::now() + most;
    while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn runtime(server: &Server) -> io::Result<Runtime> {
    let workers = if server.stored().is_some() { STORE_WORKERS } else { WORKERS };
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(workers)
        .thread_name("worker")
        .build()
}

/// A client that has come in, and the TLS that it is to speak.
type Arrival = (std::net::TcpStream, Option<Tls>);

/// A thread with connections of its own.
struct EventLoop {
    connections: UnboundedSender<Arrival>,
    thread: JoinHandle<()>,
}

impl EventLoop {
    fn start(number: usize, server: &Arc<Server>) -> io::Result<EventLoop> {
        let (connections, incoming) = unbounded_channel();
        let server = Arc::clone(server);
        let runtime = runtime(&server)?;
        let work = move || runtime.block_on(serve_all(incoming, server));
        let thread = std::thread::Builder::new().name(format!("clients-{number}")).spawn(work)?;
        Ok(EventLoop { connections, thread })
    }
}

async fn accept(
    listeners: Listeners,
    server: &Arc<Server>,
    loops: &[EventLoop],
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (tls_listener, tls) = listeners.tls.unzip();
    let (plain, tls_listener) = (nonblocking(listeners.plain)?, nonblocking(tls_listener)?);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut shutdown, mut stopped) = (std::pin::pin!(shutdown), std::pin::pin!(server.stopped()));
    let mut turn = 0;
    loop {
        let (accepted, tls) = tokio::select! {
            accepted = next(plain.as_ref()) => (accepted, None),
            accepted = next(tls_listener.as_ref()) => (accepted, tls.clone()),
            _ = ticks.tick() => {
                tick(server);
                continue;
            }
            () = &mut shutdown => return Ok(()),
            () = &mut stopped => return Ok(()),
        };
        match accepted {
            Ok((stream, address)) => {
                turn = (turn + 1) % loops.len();
                if let Err(error) = admit(stream, address, tls, server, &loops[turn]) {
                    tracing::debug!(%error, "client disconnected before it was served");
                }
            }
            Err(error) => {
                // No more file descriptors, most likely: those there are may be closed soon.
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn nonblocking(listener: Option<TcpListener>) -> io::Result<Option<tokio::net::TcpListener>> {
    let Some(listener) = listener else { return Ok(None) };
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener).map(Some)
}

/// The next client; where nobody listens, there is never one.
async fn next(listener: Option<&tokio::net::TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

fn admit(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Tls>,
    server: &Server,
    event_loop: &EventLoop,
) -> io::Result<()> {
    server.statistics.connections.fetch_add(1, Ordering::Relaxed);
    let local = stream.local_addr().ok().map(|local| local.ip());
    if let Some(text) = server.refusal(address.ip(), local) {
        server.statistics.rejected.fetch_add(1, Ordering::Relaxed);
        server.refusals.warn("refused clients: --max-clients or protected mode");
        // Who expects TLS could not read it.
        if tls.is_none() {
            stream.try_write(&text)?;
        }
        return Ok(());
    }
    stream.set_nodelay(true)?;
    // The thread is there until the sender is dropped.
    let _ = event_loop.connections.send((stream.into_std()?, tls));
    Ok(())
}

/// What is done ten times a second: keys expire, idle clients are disconnected.
fn tick(server: &Server) {
    // Most at once: some milliseconds.
    server.keyspace.expire_due(now(), 10_000);
    server.transfers.forget_old(now());
    server.rates.look(&server.statistics, Instant::now());
    server.limits.peak();
    server.over_target.step(&server.keyspace, now());
    let timeout = Duration::from_secs(server.settings().timeout);
    if !timeout.is_zero() {
        for client in server.clients.list() {
            let active = client.state.lock().active.unwrap_or(client.since);
            if active.elapsed() > timeout && !client.is_at_work() {
                client.kill();
            }
        }
    }
}

thread_local! {
    /// The buffers of a thread, lent to one connection after another. They are the thread's, and not a
    /// reference of each connection, so that connections are tasks of the runtime itself: a `LocalSet`
    /// between them would be woken, and would wake them, once more for each request.
    static INPUT: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

async fn serve_all(mut incoming: UnboundedReceiver<Arrival>, server: Arc<Server>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some((stream, tls)) = incoming.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                let connection = Connection::new(stream, &server);
                tasks.spawn(connection.serve(tls));
            }
            Err(error) => tracing::warn!(%error, "cannot serve a client"),
        }
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

/// Who has ended a connection.
enum End {
    /// The client, or somebody who does not care what it still has to say.
    Theirs,
    /// The server, which has said why.
    Ours,
}

struct Connection {
    stream: Stream,
    server: Arc<Server>,
    client: Arc<Client>,
    /// None while it is away, on a thread for long work.
    session: Option<Session>,
    /// The beginning of a request of which the rest is still to come.
    input: Vec<u8>,
    /// What belongs behind it, if it is long.
    arrived: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, server: &Arc<Server>) -> Connection {
        let address = |address: io::Result<std::net::SocketAddr>| {
            address.map_or_else(|_| String::from("?:0"), |address| address.to_string())
        };
        let client =
            server.clients.enter(address(stream.peer_addr()), address(stream.local_addr()));
        let session = Session::new(Arc::clone(&client), server);
        Connection {
            stream: Stream::Plain(stream),
            server: Arc::clone(server),
            client,
            session: Some(session),
            input: Vec::new(),
            arrived: Vec::new(),
        }
    }

    async fn serve(mut self, tls: Option<Tls>) {
        let client = Arc::clone(&self.client);
        let mut killed = std::pin::pin!(client.killed());
        if self.server.is_stopping() {
            client.finish(); // It came after all others were notified.
        }
        let result = match tls {
            // In a box, or every connection would have room for a handshake all its life.
            Some(tls) => Box::pin(self.shake_hands(&tls, killed.as_mut())).await,
            None => Ok(()),
        };
        let result = match result {
            Ok(()) => self.serve_requests(killed.as_mut()).await,
            Err(error) => Err(error),
        };
        let lingers = match result {
            Ok(End::Theirs) => false,
            Ok(End::Ours) => true,
            Err(error) => {
                let is_evicted = error.kind() == io::ErrorKind::OutOfMemory;
                if is_evicted {
                    let text = format!("-ERR {error}\r\n");
                    // It gets a notice if it reads.
                    poll_fn(|context| {
                        Poll::Ready(self.stream.poll_write(context, text.as_bytes())).map(drop)
                    })
                    .await;
                }
                let Client { id, address, .. } = &*client;
                tracing::debug!(id, address, %error, "connection broke");
                is_evicted
            }
        };
        poll_fn(|context| self.stream.poll_close(context)).await;
        if lingers {
            tokio::select! {
                () = killed.as_mut() => {}
                () = finishing(&client) => {}
                _ = tokio::time::timeout(LONGEST_LINGER, self.linger()) => {}
            }
        }
        self.server.clients.leave(client.id);
    }

    /// Reads and drops what still comes from a client after a reply that the connection ends. A
    /// socket that is closed with bytes unread resets the connection, and the client loses the
    /// reply that it has not read: it may be writing a request of a gigabyte before it looks.
    async fn linger(&mut self) {
        // Nothing is answered any more. A session that failed at work is gone already.
        (self.input, self.arrived, self.session) = (Vec::new(), Vec::new(), None);
        let _ = self.server.clients.hold(&self.client, CONNECTION);
        loop {
            let more = poll_fn(|context| {
                INPUT.with_borrow_mut(|buffer| {
                    let mut unread = ReadBuf::new(buffer);
                    ready!(self.stream.poll_read(context, &mut unread))?;
                    Poll::Ready(Ok::<_, io::Error>(unread.filled().len()))
                })
            });
            match tokio::time::timeout(LINGER, more).await {
                Ok(Ok(count)) if count > 0 => yield_now().await,
                _ => return,
            }
        }
    }

    /// Puts the connection under TLS.
    async fn shake_hands(
        &mut self,
        tls: &Tls,
        killed: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<()> {
        let Stream::Plain(stream) = std::mem::replace(&mut self.stream, Stream::Closed) else {
            unreachable!("a connection begins in the clear")
        };
        self.stream = tokio::select! {
            () = killed => return Err(io::ErrorKind::ConnectionAborted.into()),
            accepted = tls.accept(stream) => accepted?,
        };
        Ok(())
    }

    async fn serve_requests(
        &mut self,
        mut killed: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<End> {
        let client = Arc::clone(&self.client);
        let (mut quiet, mut waited) = (QUIET, Duration::ZERO);
        loop {
            // A client that waits keeps no buffer from others.
            let mut out = Vec::new();
            let (read, mut progress) = tokio::select! {
                biased;
                // First, or a client that never stops sending could not be disconnected.
                () = killed.as_mut() => return Ok(End::Theirs),
                done = poll_fn(|context| self.poll_read(context, &mut out)) => done?,
                // Last, so that what has arrived is read; woken by what wakes `killed`.
                () = finishing(&client) => {
                    let more = poll_fn(|context| self.poll_read(context, &mut out));
                    let since = Instant::now();
                    match tokio::time::timeout(quiet, more).await {
                        Ok(done) => {
                            waited += since.elapsed();
                            done?
                        }
                        Err(_) => return Ok(End::Theirs),
                    }
                }
            };
            // The bytes of replies that are this client's own: a thread lends the others.
            let mut kept = counted(out.capacity());
            loop {
                self.hold(kept)?;
                if let Some(sequence) = progress.commit {
                    kept = self.commit(sequence, &mut out, kept).await?;
                }
                self.write(&mut out, killed.as_mut()).await?;
                if out.capacity() > KEEP {
                    out = Vec::new();
                }
                if kept > 0 {
                    kept = 0;
                    self.hold(kept)?;
                }
                match progress.next {
                    Next::Read => break,
                    Next::Close if read == 0 => return Ok(End::Theirs),
                    Next::Close => return Ok(End::Ours),
                    Next::Write => {
                        progress = self.process(&mut out)?;
                        kept = counted(out.capacity());
                    }
                    Next::Work => {
                        // It may have to wait for a thread: others need the buffer meanwhile.
                        OUTPUT.set(out);
                        (out, progress) = self.work().await?;
                        kept = out.capacity();
                    }
                }
            }
            OUTPUT.set(out);
            // On a busy machine clients may be notified long after that.
            if self.server.is_stopping() {
                quiet = QUIET_IN_MIDST.min(QUIET_IN_ALL.saturating_sub(waited)).max(QUIET);
            }
            if read >= TURN {
                yield_now().await;
            }
        }
    }

    /// Reads what has arrived, and carries out the requests in it.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<io::Result<(usize, Progress)>> {
        INPUT.with_borrow_mut(|buffer| {
            let mut unread = ReadBuf::new(buffer);
            // Knows that nothing is left when less was read than there is room for: `try_read` does
            // not, and would ask once more for each request.
            ready!(self.stream.poll_read(context, &mut unread))?;
            *out = OUTPUT.take();
            out.clear();
            Poll::Ready(self.receive(unread.filled(), out))
        })
    }

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<(usize, Progress)> {
        if bytes.is_empty() {
            return Ok((0, Progress { consumed: 0, next: Next::Close, commit: None }));
        }
        self.client.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.server.statistics.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if self.input.len() + bytes.len() > LONG {
            self.arrived.extend_from_slice(bytes);
            return Ok((bytes.len(), Progress { consumed: 0, next: Next::Work, commit: None }));
        }
        if !self.input.is_empty() {
            self.input.extend_from_slice(bytes);
            return Ok((bytes.len(), self.process(out)?));
        }
        let session = self.session.as_mut().expect("here unless at work");
        let progress = guarded(session, &self.server, bytes, out, Place::Shared)?;
        self.input.extend_from_slice(&bytes[progress.consumed..]);
        Ok((bytes.len(), progress))
    }

    /// Carries out the requests in what was kept.
    fn process(&mut self, out: &mut Vec<u8>) -> io::Result<Progress> {
        let session = self.session.as_mut().expect("here unless at work");
        let progress = guarded(session, &self.server, &self.input, out, Place::Shared)?;
        consume(&mut self.input, progress.consumed);
        Ok(progress)
    }

    /// The same on a thread of its own.
    async fn work(&mut self) -> io::Result<(Vec<u8>, Progress)> {
        let mut session = self.session.take().expect("at work once at a time");
        let mut input = std::mem::take(&mut self.input);
        let arrived = std::mem::take(&mut self.arrived);
        let server = Arc::clone(&self.server);
        self.client.set_at_work(true);
        let work = move || {
            let mut out = Vec::new();
            let length = input.len() + arrived.len();
            if length > input.capacity() {
                let grown = length.max(2 * input.capacity());
                // Both are there while one is copied to the other.
                session.state.buffered = input.capacity() + arrived.capacity() + grown;
                session.state.hold(&server, 0).map_err(too_much)?;
                input.reserve_exact(grown - input.len());
            }
            input.extend_from_slice(&arrived);
            drop(arrived);
            session.state.buffered = input.capacity();
            let progress = guarded(&mut session, &server, &input, &mut out, Place::Own)?;
            consume(&mut input, progress.consumed);
            Ok::<_, io::Error>((session, input, out, progress))
        };
        let done = spawn_blocking(work).await;
        self.client.set_at_work(false);
        let (session, input, out, progress) = done??;
        (self.session, self.input) = (Some(session), input);
        Ok((out, progress))
    }

    /// Waits until what was changed is kept. If it is not, the replies say so. Returns the bytes of
    /// replies that are this client's own then, of which there were `kept`.
    async fn commit(&mut self, sequence: u64, out: &mut Vec<u8>, kept: usize) -> io::Result<usize> {
        let Some(log) = self.server.log() else { return Ok(kept) };
        let Err(failure) = log.commit(sequence).await else { return Ok(kept) };
        let session = self.session.as_mut().expect("here unless at work");
        session.withdraw(&self.server, out, &failure).map_err(too_much)?;
        let kept = counted(out.capacity());
        self.hold(kept)?;
        Ok(kept)
    }

    /// Writes all replies.
    async fn write(
        &mut self,
        out: &mut Vec<u8>,
        mut killed: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let mut written = 0;
        // Nearly always the socket takes all at once: no clock is looked at for that.
        let done = poll_fn(|context| Poll::Ready(self.poll_write_all(context, out, &mut written)));
        let mut is_done = match done.await {
            Poll::Ready(result) => result.map(|()| true)?,
            Poll::Pending => false,
        };
        let was_slow = !is_done;
        while !is_done {
            // A message would stand in the middle of a reply: there is none.
            self.hold(out.capacity())
                .map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
            let before = written;
            let seconds = self.server.settings().write_timeout;
            tokio::select! {
                biased;
                result = poll_fn(|context| self.poll_write_all(context, out, &mut written)) => {
                    result?;
                    is_done = true;
                }
                () = killed.as_mut() => return Err(io::ErrorKind::ConnectionAborted.into()),
                // It may be slow, but it has to read something.
                () = tokio::time::sleep(Duration::from_secs(seconds)), if seconds > 0 => {
                    if written == before {
                        self.server.statistics.unread.fetch_add(1, Ordering::Relaxed);
                        let text = format!("it read nothing for {seconds} s (--write-timeout)");
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                }
            }
        }
        self.server.statistics.bytes_out.fetch_add(written as u64, Ordering::Relaxed);
        out.clear();
        if was_slow { self.hold(counted(out.capacity())) } else { Ok(()) }
    }

    /// Writes as much of `out` as the socket takes, from `written` on, until all of it is sent.
    fn poll_write_all(
        &mut self,
        context: &mut Context<'_>,
        out: &[u8],
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *written < out.len() {
            match ready!(self.stream.poll_write(context, &out[*written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *written += count,
            }
        }
        self.stream.poll_flush(context)
    }

    /// Enters what the client holds, and so many bytes of replies.
    fn hold(&mut self, replies: usize) -> io::Result<()> {
        let session = self.session.as_mut().expect("here unless at work");
        session.state.buffered = self.input.capacity() + self.arrived.capacity();
        session.state.hold(&self.server, replies).map_err(too_much)
    }
}

/// The client gets the reason, if nothing stands before it that is not written.
fn too_much(excess: Excess) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, excess)
}

/// Ready when a client is to finish. A client that waits is woken by [`Client::killed`].
async fn finishing(client: &Client) {
    poll_fn(|_| if client.is_finishing() { Poll::Ready(()) } else { Poll::Pending }).await;
}

fn consume(input: &mut Vec<u8>, count: usize) {
    input.drain(..count);
    if input.is_empty() && input.capacity() > 0 {
        *input = Vec::new(); // An idle connection takes no memory for it.
    } else if count > 0 && input.capacity() > LONG {
        input.shrink_to(2 * input.len());
    }
}

/// A mistake of ours costs one connection, not the server.
fn guarded(
    session: &mut Session,
    server: &Server,
    input: &[u8],
    out: &mut Vec<u8>,
    place: Place,
) -> io::Result<Progress> {
    let work = AssertUnwindSafe(|| session.process(server, input, out, place));
    catch_unwind(work).map_err(|_| {
        let Client { id, address, .. } = &*session.state.client;
        tracing::error!(id, address, "command panicked, connection closed");
        io::Error::other("a command panicked")
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Mutex;

    use super::*;
    use crate::settings::Config;

    /// What was logged as an error, by any thread.
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct Log;

    impl tracing::Subscriber for Log {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::ERROR
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            struct Text(String);
            impl tracing::field::Visit for Text {
                fn record_debug(
                    &mut self,
                    field: &tracing::field::Field,
                    value: &dyn std::fmt::Debug,
                ) {
                    self.0.push_str(&format!("{field}={value:?} "));
                }
            }
            let mut text = Text(String::new());
            event.record(&mut text);
            LOGGED.lock().unwrap().push(text.0);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_panic_costs_one_connection_and_is_logged() {
        tracing::subscriber::set_global_default(Log).expect("no other test of this crate logs");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Server::new(Config { threads: 1, ..Config::default() }));
        let shared = Arc::clone(&server);
        let thread = std::thread::spawn(move || run(listener, &shared, std::future::pending()));

        let mut steady = std::net::TcpStream::connect(address).unwrap();
        let mut check = |text: &[u8], expected: &[u8]| {
            steady.write_all(text).unwrap();
            let mut reply = vec![0; expected.len()];
            steady.read_exact(&mut reply).unwrap();
            assert_eq!(reply, expected);
        };
        check(b"BF.ADD f x\r\n", b":1\r\n");
        // On the thread of all clients, and on one for long work.
        for request in [&b"DEBUG PANIC\r\n"[..], b"DEBUG PANIC later\r\n"] {
            let mut unlucky = std::net::TcpStream::connect(address).unwrap();
            unlucky.write_all(request).unwrap();
            let mut reply = Vec::new();
            unlucky.read_to_end(&mut reply).unwrap();
            assert_eq!(reply, b"", "it is closed without an answer");
            check(b"BF.EXISTS f x\r\n", b":1\r\n");
        }
        let logged = LOGGED.lock().unwrap().clone();
        assert_eq!(logged.len(), 2, "{logged:?}");
        assert!(logged.iter().all(|text| text.contains("command panicked")), "{logged:?}");
        assert!(logged[0].contains("address=\"127.0.0.1:"), "{logged:?}");
        server.shut_down();
        assert_eq!(thread.join().unwrap().unwrap(), Ended::All);
    }
}
