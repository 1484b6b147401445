import { useId, useRef } from "react";

interface Props {
  name: string;
  title: string;
  says: string;
  onYes: () => void;
  danger?: boolean;
  disabled?: boolean;
  /** Why whoever looks may not do it: the button says so, and does nothing. */
  denied?: string | undefined;
}

/** A button that asks before it does something. */
export function Confirm({ name, title, says, onYes, danger, disabled, denied }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const reason = useId();
  if (denied)
    return (
      <>
        <button type="button" aria-disabled="true" aria-describedby={reason} title={denied}>
          {name}
        </button>
        <span id={reason} className="hidden">
          {denied}
        </span>
      </>
    );
  return (
    <>
      <button
        type="button"
        className={danger ? "danger" : undefined}
        disabled={disabled}
        onClick={() => dialog.current?.showModal()}
      >
        {name}
      </button>
      <dialog ref={dialog} aria-label={title}>
        <form method="dialog">
          <h2>{title}</h2>
          <p className="soft">{says}</p>
          <div className="actions">
            <button type="submit">Go back</button>
            <button type="submit" className="main" onClick={onYes}>
              {name}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
