// The sections of the storage benchmarks that the run has.

import { useMemo } from "preact/hooks";

import type { Measurement } from "../data/records";
import { DEVICE, figuresOf, HDF5, IOR, SOLVER } from "../data/storage";
import { StorageDevice } from "./StorageDevice";
import { StorageHdf5 } from "./StorageHdf5";
import { StorageIor } from "./StorageIor";
import { StorageSolver } from "./StorageSolver";

export function Storage({ measurements }: { measurements: Measurement[] }) {
  const { ior, solver, hdf5, device } = useMemo(() => {
    const figuresNamed = (name: string) => figuresOf(measurements, name);
    return {
      ior: figuresNamed(IOR),
      solver: figuresNamed(SOLVER),
      hdf5: figuresNamed(HDF5),
      device: figuresNamed(DEVICE),
    };
  }, [measurements]);
  return (
    <>
      {ior.length > 0 && <StorageIor figures={ior} />}
      {solver.length > 0 && <StorageSolver figures={solver} />}
      {hdf5.length > 0 && <StorageHdf5 figures={hdf5} />}
      {device.length > 0 && <StorageDevice figures={device} />}
    </>
  );
}
