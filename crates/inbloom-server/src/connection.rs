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
//! is not read from either: it holds at most about a megabyte and its longest reply.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_blocking, yield_now};

use crate::server::{Client, Server, now};
use crate::session::{Next, Place, Progress, Session};

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
/// A client that goes on sending then, or does not read its replies, is sent away after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads for long work, for each event loop.
const WORKERS: usize = 8;

/// Serves clients of `listener` until `shutdown` is ready or a client says SHUTDOWN. What connected
/// clients have sent by then is answered.
pub fn run(
    listener: TcpListener,
    server: &Arc<Server>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let loops: Vec<EventLoop> = (0..server.config.threads.max(1))
        .map(|at| EventLoop::start(at, server))
        .collect::<Result<_, _>>()?;
    let result = runtime()?.block_on(accept(listener, server, &loops, shutdown));
    server.shut_down();
    server.clients.list().iter().for_each(|client| client.finish());
    let threads: Vec<JoinHandle<()>> = loops.into_iter().map(|each| each.thread).collect();
    let until = Instant::now() + PATIENCE;
    while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.clients.list().iter().for_each(|client| client.kill());
    for thread in threads {
        let _ = thread.join();
    }
    result
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORKERS)
        .thread_name("worker")
        .build()
}

/// A thread with connections of its own.
struct EventLoop {
    connections: UnboundedSender<std::net::TcpStream>,
    thread: JoinHandle<()>,
}

impl EventLoop {
    fn start(number: usize, server: &Arc<Server>) -> io::Result<EventLoop> {
        let (connections, incoming) = unbounded_channel();
        let server = Arc::clone(server);
        let runtime = runtime()?;
        let work = move || LocalSet::new().block_on(&runtime, serve_all(incoming, server));
        let thread = std::thread::Builder::new().name(format!("clients-{number}")).spawn(work)?;
        Ok(EventLoop { connections, thread })
    }
}

async fn accept(
    listener: TcpListener,
    server: &Arc<Server>,
    loops: &[EventLoop],
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut shutdown, mut stopped) = (std::pin::pin!(shutdown), std::pin::pin!(server.stopped()));
    let mut turn = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    turn = (turn + 1) % loops.len();
                    if let Err(error) = admit(stream, server, &loops[turn]) {
                        tracing::debug!(%error, "a client left before it was served");
                    }
                }
                Err(error) => {
                    // No more file descriptors, most likely: those there are may be closed soon.
                    tracing::warn!(%error, "could not accept a client");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            _ = ticks.tick() => tick(server),
            () = &mut shutdown => return Ok(()),
            () = &mut stopped => return Ok(()),
        }
    }
}

fn admit(stream: TcpStream, server: &Server, event_loop: &EventLoop) -> io::Result<()> {
    server.statistics.connections.fetch_add(1, Ordering::Relaxed);
    if server.clients.count() >= server.settings().max_clients {
        server.statistics.rejected.fetch_add(1, Ordering::Relaxed);
        server.refusals.warn("clients were refused: there are as many as --max-clients allows");
        stream.try_write(b"-ERR max number of clients reached\r\n")?;
        return Ok(());
    }
    stream.set_nodelay(true)?;
    // The thread is there until the sender is dropped.
    let _ = event_loop.connections.send(stream.into_std()?);
    Ok(())
}

/// What is done ten times a second: keys expire, idle clients are sent away.
fn tick(server: &Server) {
    // Most at once: some milliseconds.
    server.keyspace.expire_due(now(), 10_000);
    server.transfers.forget_old(now());
    let timeout = Duration::from_secs(server.settings().timeout);
    if !timeout.is_zero() {
        for client in server.clients.list() {
            let active = client.state.lock().active.unwrap_or(client.since);
            if active.elapsed() > timeout {
                client.kill();
            }
        }
    }
}

/// The buffers of a thread, lent to one connection after another.
struct Buffers {
    input: RefCell<Vec<u8>>,
    output: Cell<Vec<u8>>,
}

async fn serve_all(mut incoming: UnboundedReceiver<std::net::TcpStream>, server: Arc<Server>) {
    let buffers = Rc::new(Buffers { input: RefCell::new(vec![0; READ]), output: Cell::default() });
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(stream) = incoming.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                let connection = Connection::new(stream, &server, &buffers);
                tasks.spawn_local(connection.serve());
            }
            Err(error) => tracing::warn!(%error, "could not serve a client"),
        }
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

struct Connection {
    stream: TcpStream,
    server: Arc<Server>,
    buffers: Rc<Buffers>,
    client: Arc<Client>,
    /// None while it is away, on a thread for long work.
    session: Option<Session>,
    /// The beginning of a request of which the rest is still to come.
    input: Vec<u8>,
    /// What belongs behind it, if it is long.
    arrived: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, server: &Arc<Server>, buffers: &Rc<Buffers>) -> Connection {
        let address = |address: io::Result<std::net::SocketAddr>| {
            address.map_or_else(|_| String::from("?:0"), |address| address.to_string())
        };
        let client =
            server.clients.enter(address(stream.peer_addr()), address(stream.local_addr()));
        let session = Session::new(Arc::clone(&client), server);
        Connection {
            stream,
            server: Arc::clone(server),
            buffers: Rc::clone(buffers),
            client,
            session: Some(session),
            input: Vec::new(),
            arrived: Vec::new(),
        }
    }

    async fn serve(mut self) {
        let client = Arc::clone(&self.client);
        let mut killed = std::pin::pin!(client.killed());
        if self.server.is_stopping() {
            client.finish(); // It came after all others were told.
        }
        if let Err(error) = self.serve_requests(killed.as_mut()).await {
            tracing::debug!(client = client.id, %error, "a connection broke");
        }
        self.server.clients.leave(client.id);
    }

    async fn serve_requests(
        &mut self,
        mut killed: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<()> {
        let client = Arc::clone(&self.client);
        loop {
            // Whoever waits keeps no buffer from others.
            let mut out = Vec::new();
            let (read, mut progress) = tokio::select! {
                biased;
                // First, or a client that never stops sending could not be sent away.
                () = killed.as_mut() => return Ok(()),
                done = poll_fn(|context| self.poll_read(context, &mut out)) => done?,
                // Last, so that what has arrived is read; woken by what wakes `killed`.
                () = finishing(&client) => {
                    let more = poll_fn(|context| self.poll_read(context, &mut out));
                    match tokio::time::timeout(QUIET, more).await {
                        Ok(done) => done?,
                        Err(_) => return Ok(()),
                    }
                }
            };
            loop {
                if let Some(sequence) = progress.commit {
                    self.commit(sequence, &mut out).await;
                }
                self.write(&mut out, killed.as_mut()).await?;
                match progress.next {
                    Next::Read => break,
                    Next::Close => return Ok(()),
                    Next::Write => progress = self.process(&mut out)?,
                    Next::Work => (out, progress) = self.work(out).await?,
                }
            }
            if out.capacity() <= KEEP {
                self.buffers.output.set(out);
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
        let buffers = Rc::clone(&self.buffers);
        let mut buffer = buffers.input.borrow_mut();
        let mut unread = ReadBuf::new(&mut buffer);
        // Knows that nothing is left when less was read than there is room for: `try_read` does not,
        // and would ask once more for each request.
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut unread))?;
        *out = buffers.output.take();
        out.clear();
        Poll::Ready(self.receive(unread.filled(), out))
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
    async fn work(&mut self, mut out: Vec<u8>) -> io::Result<(Vec<u8>, Progress)> {
        let mut session = self.session.take().expect("at work once at a time");
        let mut input = std::mem::take(&mut self.input);
        let arrived = std::mem::take(&mut self.arrived);
        let server = Arc::clone(&self.server);
        let work = move || {
            input.extend_from_slice(&arrived);
            let progress = guarded(&mut session, &server, &input, &mut out, Place::Own)?;
            consume(&mut input, progress.consumed);
            Ok::<_, io::Error>((session, input, out, progress))
        };
        let (session, input, out, progress) = spawn_blocking(work).await??;
        (self.session, self.input) = (Some(session), input);
        Ok((out, progress))
    }

    /// Waits until what was changed is kept. If it is not, the replies say so.
    async fn commit(&mut self, sequence: u64, out: &mut Vec<u8>) {
        let Some(log) = self.server.log() else { return };
        if let Err(failure) = log.commit(sequence).await {
            let session = self.session.as_mut().expect("here unless at work");
            session.withdraw(&self.server, out, &failure);
        }
    }

    /// Writes all replies.
    async fn write(
        &self,
        out: &mut Vec<u8>,
        mut killed: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<()> {
        let mut written = 0;
        while written < out.len() {
            match self.stream.try_write(&out[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                    ready = self.stream.writable() => ready?,
                    () = killed.as_mut() => return Err(io::ErrorKind::ConnectionAborted.into()),
                },
                Err(error) => return Err(error),
            }
        }
        self.server.statistics.bytes_out.fetch_add(written as u64, Ordering::Relaxed);
        out.clear();
        Ok(())
    }
}

/// Ready when a client is to finish. Whoever waits has to be woken by [`Client::killed`].
async fn finishing(client: &Client) {
    poll_fn(|_| if client.is_finishing() { Poll::Ready(()) } else { Poll::Pending }).await;
}

fn consume(input: &mut Vec<u8>, count: usize) {
    input.drain(..count);
    if input.is_empty() && input.capacity() > 0 {
        *input = Vec::new(); // An idle connection takes no memory for it.
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
        tracing::error!("a command failed inside; its connection is closed");
        io::Error::other("a command failed inside")
    })
}
