//! Several VMs of one proxy at once, each on a thread of its own, with one space of shared data.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use crate::proxy::{Proxy, in_this_thread};
use crate::space::Space;

type Job = Box<dyn FnOnce(&Proxy, u32) + Send>;

/// A worker with one root. It acts when it is told to, while the test waits.
pub struct Vm {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Vm {
    pub fn start(space: &Space, policy: &Value) -> Vm {
        let (space, policy) = (space.clone(), policy.clone());
        let (jobs, incoming) = channel::<Job>();
        let run = move || {
            in_this_thread(&space, |proxy| {
                let root = proxy.root(&policy);
                for job in incoming {
                    job(proxy, root);
                }
            });
        };
        let vm = Vm { jobs: Some(jobs), thread: Some(thread::spawn(run)) };
        vm.act(|_, _| ()); // it is configured
        vm
    }

    pub fn act<T: Send + 'static>(&self, act: impl FnOnce(&Proxy, u32) -> T + Send + 'static) -> T {
        let (results, result) = channel();
        let job = Box::new(move |proxy: &Proxy, root| {
            let _ = results.send(act(proxy, root));
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        assert!(sent, "the VM is there");
        result.recv().expect("the VM does what it is told")
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
